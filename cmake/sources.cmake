# gp_source_options(OPTIONS FILE...): compile these files with these options too. A file that does not exist is an
# error; set_source_files_properties() would ignore it.
function(gp_source_options options)
  foreach(file ${ARGN})
    get_filename_component(path ${file} ABSOLUTE)
    if(NOT EXISTS ${path})
      message(FATAL_ERROR "gp_source_options: there is no ${path}")
    endif()
  endforeach()
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "${options}")
endfunction()
