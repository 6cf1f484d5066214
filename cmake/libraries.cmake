# Let the users of a static library link the libraries that it calls, except a program with the property GP_LIBRARIES_LOADED: such
# a program links client/cli/commands/library_load.c in their place. All users can include their headers.
function(gp_link_or_load target)
  foreach(library ${ARGN})
    target_include_directories(${target} SYSTEM PUBLIC $<TARGET_PROPERTY:${library},INTERFACE_INCLUDE_DIRECTORIES>)
    target_link_libraries(${target}
      INTERFACE $<LINK_ONLY:$<$<NOT:$<BOOL:$<TARGET_PROPERTY:GP_LIBRARIES_LOADED>>>:${library}>>)
  endforeach()
endfunction()
