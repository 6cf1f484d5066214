# Hardening against memory errors, for all C sources including the kernels: stack canaries and probes at the entry of functions
# with arrays, never in loops (costs: docs/security.md). Not combined with sanitizers, which detect more and interfere with
# it. tests/style/hardened checks the built files.
option(GP_HARDEN "Harden the programs against memory errors; OFF only to measure the cost" ON)
if(NOT GP_HARDEN)
  return()
endif()
include(CheckCCompilerFlag)
include(CheckPIESupported)
if(GP_SANITIZE STREQUAL "address" AND NOT GP_FUZZ)
  # UBSan stores an address for each check: a quarter of a million, which every new process would relocate.
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
  # Needs optimization. Level 3 also checks sizes known only at run time, and needs gcc 12 or clang 15.
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
