# gradpool_add_tasks(NAME SOURCE...): a shared object NAME.so of task functions, which a client names "NAME.so:function".
#
# Only functions marked GP_TASK are visible in it.  gp_task_... and gp_fail() are the worker's: they are found when it
# loads the object.  To link what the tasks need: target_link_libraries(NAME PRIVATE m).
function(gradpool_add_tasks name)
  if(NOT ARGN)
    message(FATAL_ERROR "gradpool_add_tasks(${name}) has no source file; say gradpool_add_tasks(${name} ${name}.c)")
  endif()
  add_library(${name} MODULE ${ARGN})
  target_link_libraries(${name} PRIVATE gradpool::tasks)
  set_target_properties(${name} PROPERTIES PREFIX "" SUFFIX ".so" C_VISIBILITY_PRESET hidden
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  # A task has no header of its own: who warns about missing declarations does not mean tasks.
  target_compile_options(${name} PRIVATE -Wno-missing-declarations
    "$<$<COMPILE_LANGUAGE:C>:-Wno-missing-prototypes>")
endfunction()
