# gradpool_onednn.so: segments that run on oneDNN, if it is available. A worker loads the module for large networks.
# gp_onednn is the same code for linking into tests.
list(APPEND CMAKE_MODULE_PATH ${PROJECT_SOURCE_DIR}/cmake)
if(GP_SANITIZE STREQUAL "thread")
  message(STATUS "oneDNN: disabled, the thread sanitizer does not support libgomp")
  return()
endif()
find_package(OpenMP COMPONENTS C)
find_package(OneDNN 2.6)
if(NOT OneDNN_FOUND OR NOT OpenMP_C_FOUND)
  message(STATUS "oneDNN: not found; large networks train slowly (run scripts/lib/onednn to install it)")
  return()
endif()
message(STATUS "oneDNN: ${OneDNN_VERSION} in ${OneDNN_DIRECTORY}")

set(onednn_folder ${PROJECT_SOURCE_DIR}/worker/backend/cpu/onednn)
# The module contains the plain loops too, like the backend.
list(TRANSFORM GP_LOOPS_SOURCES PREPEND ${PROJECT_SOURCE_DIR}/worker/backend/ OUTPUT_VARIABLE onednn_loops)
gp_source_options("${GP_LOOPS_OPTIONS}" ${onednn_loops})
set(onednn_sources onednn.c onednn_ops.c onednn_layers.c onednn_pool.c onednn_parameters.c onednn_tensors.c
  onednn_pending.c onednn_memory.c onednn_loops.c onednn_norm.c onednn_norm_narrow.c
  onednn_norm_wide.c onednn_wide.c onednn_winograd.c winograd.c winograd_gradient.c
  onednn_dropout.c ../base/threads.c)
list(TRANSFORM onednn_sources PREPEND ${onednn_folder}/)
gp_source_options("${GP_LOOPS_OPTIONS}" ${onednn_folder}/onednn_loops.c ${onednn_folder}/onednn_dropout.c)
list(APPEND onednn_sources ${onednn_loops})
set(onednn_level -O3)
# Unrolled code with inline checks takes many minutes to compile; calls check the same accesses.
if(GP_SANITIZE)
  set(onednn_level -O1 ${GP_KERNEL_WATCH})
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    list(APPEND onednn_level --param=asan-instrumentation-with-call-threshold=0)
  endif()
endif()
gp_source_options("${GP_LOOPS_OPTIONS};${onednn_level}" ${onednn_folder}/onednn_norm.c)
set(onednn_wide ${onednn_level} -ffp-contract=fast -fno-math-errno -Wno-psabi)
set(onednn_narrow)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND onednn_wide -mavx512f -mfma -mprefer-vector-width=512)
  set(onednn_narrow -mavx512bw -mavx512vl -mavx512dq) # every processor with bfloat16 products has these too
endif()
gp_source_options("${onednn_wide}" ${onednn_folder}/onednn_wide.c ${onednn_folder}/onednn_norm_wide.c
  ${onednn_folder}/winograd.c ${onednn_folder}/winograd_gradient.c)
gp_source_options("${onednn_wide};${onednn_narrow}" ${onednn_folder}/onednn_norm_narrow.c)
# gp_onednn_slow contains the slowest kernels. In a sanitizer build the module contains them without checks, because the
# checks would take half of the time of a training. The tests onednn and winograd run them with checks, in gp_onednn.
set(onednn_slow ${onednn_folder}/onednn_wide.c ${onednn_folder}/winograd.c ${onednn_folder}/winograd_gradient.c)
list(REMOVE_ITEM onednn_sources ${onednn_slow})
add_library(gp_onednn_slow OBJECT ${onednn_slow})
set(onednn_module_slow gp_onednn_slow)
if(GP_SANITIZE)
  set(onednn_module_slow gp_onednn_unchecked)
  add_library(gp_onednn_unchecked OBJECT ${onednn_slow})
  target_compile_options(gp_onednn_unchecked PRIVATE -fno-sanitize=all -Wno-maybe-uninitialized) # false alarms with -O1
endif()
add_library(gp_onednn STATIC ${onednn_sources} $<TARGET_OBJECTS:gp_onednn_slow>)
target_link_libraries(gp_onednn PUBLIC gp_model gp_base OneDNN::dnnl OpenMP::OpenMP_C)
target_compile_definitions(gp_onednn PRIVATE GP_BUILD="gradpool ${PROJECT_VERSION}")
foreach(target gp_onednn_slow ${onednn_module_slow})
  target_link_libraries(${target} PRIVATE gp_model gp_base OneDNN::dnnl OpenMP::OpenMP_C)
endforeach()

add_library(gradpool_onednn MODULE $<TARGET_OBJECTS:gp_onednn> $<TARGET_OBJECTS:${onednn_module_slow}>)
target_link_libraries(gradpool_onednn PRIVATE gp_model gp_base OneDNN::dnnl OpenMP::OpenMP_C)
set_target_properties(gradpool_onednn PROPERTIES PREFIX "" GP_LIBRARY "oneDNN ${OneDNN_VERSION}" INSTALL_RPATH_USE_LINK_PATH ON)
target_link_options(gradpool_onednn PRIVATE -Wl,--exclude-libs,ALL)
install(TARGETS gradpool_onednn LIBRARY DESTINATION lib/gradpool)
# A oneDNN that scripts/lib/onednn unpacked lies beside the module, as a link in the build folder and as a copy in an
# installation, so the module contains no path of either.
if(OneDNN_UNPACKED_VERSION)
  file(REAL_PATH "${OneDNN_UNPACKED_LIBRARY}" onednn_library)
  string(REGEX MATCH "^[0-9]+" onednn_major "${OneDNN_VERSION}")
  file(MAKE_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
  file(CREATE_LINK "${onednn_library}" ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/libdnnl.so.${onednn_major} SYMBOLIC)
  set_target_properties(gradpool_onednn PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN"
    INSTALL_RPATH_USE_LINK_PATH OFF)
  install(FILES "${onednn_library}" DESTINATION lib/gradpool RENAME libdnnl.so.${onednn_major})
endif()
