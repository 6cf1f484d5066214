# gp_test(NAME SOURCE... [LABELS a b] [LIBS x y] [TIMEOUT s] [ARGS ...])
# One executable, one ctest entry.  Exit code 77 means skipped; the reason stands on a line "SKIP: ...".
# Those that may take long begin first (COST), so that no processor waits for the last one.
# Engines are timed where a test is about that.  Tests share their processors with others: OpenMP's threads sleep while they wait.
set(GP_TEST_ENVIRONMENT ";GRADPOOL_TUNE_SECONDS=0;OMP_WAIT_POLICY=passive")
if(GP_SANITIZE STREQUAL "address") # as malloc does when asked for too much
  string(APPEND GP_TEST_ENVIRONMENT ";ASAN_OPTIONS=allocator_may_return_null=1")
endif()

function(gp_test name)
  cmake_parse_arguments(T "" "TIMEOUT" "LABELS;LIBS;ARGS" ${ARGN})
  add_executable(test_${name} ${T_UNPARSED_ARGUMENTS})
  target_link_libraries(test_${name} PRIVATE ${T_LIBS} gp_base)
  set_target_properties(test_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND test_${name} ${T_ARGS})
  if(T_TIMEOUT)
    set(cost ${T_TIMEOUT})
  elseif("service" IN_LIST T_LABELS)
    set(cost 100)
  else()
    set(cost 0)
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  if(GP_SANITIZE) # slower by so much, and by more on a machine that is busy
    math(EXPR T_TIMEOUT "${T_TIMEOUT} * 3")
  endif()
  if(NOT T_LABELS)
    set(T_LABELS unit)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${T_TIMEOUT} COST ${cost} SKIP_RETURN_CODE 77
    ENVIRONMENT "GP_BUILD_DIR=${PROJECT_BINARY_DIR};GP_SOURCE_DIR=${PROJECT_SOURCE_DIR}${GP_TEST_ENVIRONMENT}")
endfunction()
