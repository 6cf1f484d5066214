# FindOneDNN: find a oneDNN for CPUs with OpenMP threads. The first match wins:
#   the system's, 3.1 or later; GP_ONEDNN_ROOT, where scripts/lib/onednn unpacks 3.2; the system's 2.6 or later
# Defines OneDNN_FOUND, OneDNN_VERSION, OneDNN_DIRECTORY (library folder) and the target OneDNN::dnnl.
# oneDNN's own package files are not used: those in Debian 12 require OpenCL, which gradpool does not need.
include(CheckCSourceCompiles)

# onednn_try(PREFIX VERSION [OPTIONS]): set PREFIX_INCLUDE, _LIBRARY and _VERSION if a usable library of at least that
# version exists. OPTIONS are passed to find_path() and find_library().
function(onednn_try prefix version)
  find_path(${prefix}_INCLUDE oneapi/dnnl/dnnl.h PATH_SUFFIXES include ${ARGN})
  find_library(${prefix}_LIBRARY dnnl PATH_SUFFIXES lib lib64 ${ARGN})
  mark_as_advanced(${prefix}_INCLUDE ${prefix}_LIBRARY)
  set(${prefix}_VERSION "" PARENT_SCOPE)
  set(header "${${prefix}_INCLUDE}/oneapi/dnnl/dnnl_version.h")
  if(NOT ${prefix}_LIBRARY OR NOT EXISTS "${header}")
    return()
  endif()
  file(STRINGS "${header}" lines REGEX "define +DNNL_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
  string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*PATCH +([0-9]+).*" "\\1.\\2.\\3" found "${lines}")
  if(found VERSION_LESS version)
    return()
  endif()
  set(CMAKE_REQUIRED_INCLUDES "${${prefix}_INCLUDE}")
  set(CMAKE_REQUIRED_LIBRARIES "${${prefix}_LIBRARY}")
  set(CMAKE_REQUIRED_QUIET ON)
  # The cached result depends on library and version: repeat the check when either changes.
  string(MAKE_C_IDENTIFIER "ONEDNN_THREADS_BY_OPENMP_${found}_${${prefix}_LIBRARY}" answer)
  check_c_source_compiles("
    #include <oneapi/dnnl/dnnl.h>
    #if DNNL_CPU_RUNTIME != DNNL_RUNTIME_OMP
    #error built without OpenMP
    #endif
    #ifdef DNNL_WITH_SYCL
    #error built with SYCL
    #endif
    int main(void) { return dnnl_version()->major == 0; }" ${answer})
  if(${answer})
    set(${prefix}_VERSION "${found}" PARENT_SCOPE)
  endif()
endfunction()

onednn_try(OneDNN_SYSTEM 2.6)
set(onednn_place OneDNN_SYSTEM)
if(NOT OneDNN_SYSTEM_VERSION VERSION_GREATER_EQUAL 3.1)
  # Repeat the search: the library may have been unpacked since the last configuration, or the folder changed.
  unset(OneDNN_UNPACKED_INCLUDE CACHE)
  unset(OneDNN_UNPACKED_LIBRARY CACHE)
  onednn_try(OneDNN_UNPACKED 3.1 PATHS "${GP_ONEDNN_ROOT}" NO_DEFAULT_PATH)
  if(OneDNN_UNPACKED_VERSION)
    set(onednn_place OneDNN_UNPACKED)
  endif()
endif()
set(OneDNN_VERSION "${${onednn_place}_VERSION}")

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDNN
  REQUIRED_VARS ${onednn_place}_LIBRARY ${onednn_place}_INCLUDE OneDNN_VERSION VERSION_VAR OneDNN_VERSION
  REASON_FAILURE_MESSAGE "no libdnnl >= 2.6 with OpenMP in the system and none in ${GP_ONEDNN_ROOT}")
if(OneDNN_FOUND AND NOT TARGET OneDNN::dnnl)
  get_filename_component(OneDNN_DIRECTORY "${${onednn_place}_LIBRARY}" DIRECTORY)
  add_library(OneDNN::dnnl UNKNOWN IMPORTED)
  set_target_properties(OneDNN::dnnl PROPERTIES IMPORTED_LOCATION "${${onednn_place}_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${${onednn_place}_INCLUDE}")
endif()
