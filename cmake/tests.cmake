# gp_test(NAME SOURCE... [LABELS a b] [LIBS x y] [COST s] [ARGS ...])
# One executable and one ctest entry. Exit code 77: skipped, with the reason on a line "SKIP: ...".
# COST: entries with a higher cost start first, so that no processor idles at the end.
# GP_TEST_LIMIT: seconds after which an entry counts as hung. The limit is generous, because a machine may be suspended for
# minutes (262 s were observed) or be heavily loaded.
# Environment: no autotuning except in tests of it, a private cache folder, and OpenMP threads that sleep while they wait,
# because tests share the processors.
set(GP_TEST_ENVIRONMENT ";GRADPOOL_AUTOTUNE_SECONDS=0;OMP_WAIT_POLICY=passive;XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/tests/cache")
if(GP_SANITIZE STREQUAL "address") # like malloc() for excessive sizes
  string(APPEND GP_TEST_ENVIRONMENT ";ASAN_OPTIONS=allocator_may_return_null=1")
endif()

set(GP_TEST_LIMIT 900)

function(gp_test name)
  cmake_parse_arguments(T "" "COST" "LABELS;LIBS;ARGS" ${ARGN})
  add_executable(test_${name} ${T_UNPARSED_ARGUMENTS})
  target_link_libraries(test_${name} PRIVATE ${T_LIBS} gp_base)
  set_target_properties(test_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND test_${name} ${T_ARGS})
  if(NOT T_COST)
    set(T_COST 0)
    if("service" IN_LIST T_LABELS)
      set(T_COST 100)
    endif()
  endif()
  if(NOT T_LABELS)
    set(T_LABELS unit)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${GP_TEST_LIMIT} COST ${T_COST} SKIP_RETURN_CODE 77
    ENVIRONMENT "GP_BUILD_DIR=${PROJECT_BINARY_DIR};GP_SOURCE_DIR=${PROJECT_SOURCE_DIR}${GP_TEST_ENVIRONMENT}")
endfunction()
