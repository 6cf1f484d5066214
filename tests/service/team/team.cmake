# Teams: what runs on the workers is an object of its own.
gradpool_add_tasks(team_tasks team/tasks/team_tasks.c)
set_target_properties(team_tasks PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/service)
gp_test(team team/test_team.c $<TARGET_OBJECTS:gp_client> LIBS gp_proto gp_model gp_data LABELS service)
target_include_directories(test_team PRIVATE ${PROJECT_BINARY_DIR}/include)
add_dependencies(test_team gradpool-scheduler gradpool-worker gradpool team_tasks)
gp_test(detached team/test_detached.c ${PROJECT_SOURCE_DIR}/tests/fault/failing.c $<TARGET_OBJECTS:gp_client>
  LIBS gp_proto gp_model gp_data ${CMAKE_DL_LIBS} LABELS service)
target_include_directories(test_detached PRIVATE ${PROJECT_BINARY_DIR}/include)
add_dependencies(test_detached gradpool_cli gradpool-scheduler gradpool-worker team_tasks)
