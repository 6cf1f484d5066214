# gp_patched(OUT PATCH HEADER FILE...): patched copies of project sources.
#   OUT     list of the copies, which are compiled instead of the FILEs
#   PATCH   unified diff against the top folder; a hunk that does not match fails the build. To change it, apply it to
#           the tree with patch -p1, edit the sources, run git diff -U1, and revert with patch -R -p1
#   HEADER  included before everything else in each copy
function(gp_patched out patch header)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/patched)
  list(TRANSFORM ARGN PREPEND ${folder}/ OUTPUT_VARIABLE copies)
  list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE sources)
  add_custom_command(OUTPUT ${copies}
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${folder}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}
    COMMAND cp --parents ${ARGN} ${folder}
    COMMAND patch --quiet --fuzz=0 -p1 -d ${folder} -i ${CMAKE_CURRENT_SOURCE_DIR}/${patch}
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    DEPENDS ${sources} ${CMAKE_CURRENT_SOURCE_DIR}/${patch}
    VERBATIM)
  set_source_files_properties(${copies} PROPERTIES COMPILE_FLAGS "-include ${header}")
  set(${out} ${copies} PARENT_SCOPE)
endfunction()
