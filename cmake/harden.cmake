# What makes a mistake with memory hard to use.  All of our C, the engine's kernels included: a canary and a probe stand at the
# entry of functions that have arrays, never in their loops (docs/security.md has the numbers).  Not with sanitizers, which
# look closer and do not like company; tests/style/hardened reads the result back from the files.
option(GP_HARDEN "Build with what makes memory errors hard to use; OFF only to measure what that costs" ON)
if(NOT GP_HARDEN)
  return()
endif()
include(CheckCCompilerFlag)
include(CheckPIESupported)
if(GP_SANITIZE STREQUAL "address" AND NOT GP_FUZZ)
  # UBSan describes each place that it watches: a quarter of a million addresses, which each process that starts would relocate.
  add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
else()
  check_pie_supported(LANGUAGES C)
endif()

set(GP_HARDEN_FLAGS -Wformat -Wformat-security -Werror=format-security)
if(NOT GP_SANITIZE AND NOT GP_FUZZ)
  foreach(flag -fstack-protector-strong -fstack-clash-protection -fcf-protection=full)
    string(MAKE_C_IDENTIFIER "GP_HAS${flag}" has)
    set(CMAKE_REQUIRED_FLAGS -Werror)
    check_c_compiler_flag(${flag} ${has})
    unset(CMAKE_REQUIRED_FLAGS)
    if(${has})
      list(APPEND GP_HARDEN_FLAGS ${flag})
    endif()
  endforeach()
  # It needs an optimising compiler; 3, which also checks sizes known only at run time, needs gcc 12 or clang 15.
  set(GP_FORTIFY 2)
  if((CMAKE_C_COMPILER_ID STREQUAL "GNU" AND CMAKE_C_COMPILER_VERSION VERSION_GREATER_EQUAL 12) OR
     (CMAKE_C_COMPILER_ID STREQUAL "Clang" AND CMAKE_C_COMPILER_VERSION VERSION_GREATER_EQUAL 15))
    set(GP_FORTIFY 3)
  endif()
  list(APPEND GP_HARDEN_FLAGS "$<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE>"
    "$<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=${GP_FORTIFY}>")
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:C>:${GP_HARDEN_FLAGS}>")
add_link_options(LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)
