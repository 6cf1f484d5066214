# What tasks promise; the objects are in tasks/.
gradpool_add_tasks(behave_tasks team/tasks/behave_tasks.c team/tasks/behave_blocks.c
  team/tasks/behave_output.c ${PROJECT_SOURCE_DIR}/tests/sim/history.c)
foreach(name abi constructor missing)
  gradpool_add_tasks(behave_${name} team/tasks/behave_${name}.c)
endforeach()
foreach(name behave_futures behave_views behave_loops behave_blocks behave_failures behave_history behave_payloads
    behave_output)
  gp_test(${name} team/test_${name}.c $<TARGET_OBJECTS:gp_client> LIBS gp_proto gp_model gp_data LABELS service COST 120)
  target_include_directories(test_${name} PRIVATE ${PROJECT_BINARY_DIR}/include)
  add_dependencies(test_${name} gradpool-scheduler gradpool-worker behave_tasks behave_abi
    behave_constructor behave_missing)
endforeach()
target_link_libraries(test_behave_history PRIVATE gp_history)
gp_test(detached_kills team/test_detached_kills.c $<TARGET_OBJECTS:gp_client> LIBS gp_proto gp_model gp_data LABELS service)
target_include_directories(test_detached_kills PRIVATE ${PROJECT_BINARY_DIR}/include)
add_dependencies(test_detached_kills gradpool_cli gradpool-scheduler gradpool-worker behave_tasks)
