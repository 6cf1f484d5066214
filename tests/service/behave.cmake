# What tasks promise; the objects are in tasks/.
gradpool_add_tasks(behave_tasks tasks/behave_tasks.c tasks/behave_blocks.c)
gradpool_add_tasks(behave_abi tasks/behave_abi.c)
gradpool_add_tasks(behave_missing tasks/behave_missing.c)
foreach(name behave_futures)
  gp_test(${name} test_${name}.c $<TARGET_OBJECTS:gp_client> LIBS gp_proto gp_model gp_data LABELS service TIMEOUT 120)
  target_include_directories(test_${name} PRIVATE ${PROJECT_BINARY_DIR}/include)
  add_dependencies(test_${name} gradpool-scheduler gradpool-worker behave_tasks behave_abi behave_missing)
endforeach()
