# gp_source_options(OPTIONS FILE...): compile these files with these options too. A file that does not exist is an
# error; set_source_files_properties() would ignore it.
function(gp_source_options options)
  foreach(file ${ARGN})
    get_filename_component(path ${file} ABSOLUTE)
    if(NOT EXISTS ${path})
      message(FATAL_ERROR "gp_source_options: no such file: ${path}")
    endif()
  endforeach()
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS ${options})
endfunction()

# gp_optimised_with_asan(FILE...): optimize sources with long loops. The asan preset disables optimization to compile fast,
# and its tests would spend most of the time in a few functions.
function(gp_optimised_with_asan)
  if(GP_SANITIZE STREQUAL "address")
    gp_source_options(-O1 ${ARGN})
  endif()
endfunction()
