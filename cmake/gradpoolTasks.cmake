# gradpool_add_tasks(NAME SOURCE...): build a shared object NAME.so with task functions; clients call "NAME.so:function".
#
# Only functions marked GP_TASK are exported. gp_task_...() and gp_fail() are resolved when a worker loads the object.
# To link other libraries: target_link_libraries(NAME PRIVATE m).
function(gradpool_add_tasks name)
  if(NOT ARGN)
    message(FATAL_ERROR "gradpool_add_tasks(${name}) has no source file; write gradpool_add_tasks(${name} ${name}.c)")
  endif()
  add_library(${name} MODULE ${ARGN})
  target_link_libraries(${name} PRIVATE gradpool::tasks)
  set_target_properties(${name} PROPERTIES PREFIX "" SUFFIX ".so" C_VISIBILITY_PRESET hidden
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  # Tasks have no header, so warnings about missing declarations do not apply.
  target_compile_options(${name} PRIVATE -Wno-missing-declarations
    "$<$<COMPILE_LANGUAGE:C>:-Wno-missing-prototypes>")
endfunction()
