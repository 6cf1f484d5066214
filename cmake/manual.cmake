# Manual pages and shell completion, written by a program that has the command's own tables. It is not installed.
set(folder ${PROJECT_SOURCE_DIR}/client/cli/manual)
add_executable(gradpool_manual ${folder}/manual.c ${folder}/man.c ${folder}/roff.c ${folder}/completion.c
  $<TARGET_OBJECTS:gp_cli> $<TARGET_OBJECTS:gp_client>)
target_link_libraries(gradpool_manual PRIVATE gp_cli)

set(guide ${PROJECT_SOURCE_DIR}/docs/gradpool.md)
set(pages ${PROJECT_BINARY_DIR}/man/man1/gradpool.1)
foreach(line ${command_lines})
  string(REGEX REPLACE "^CLI_COMMAND\\(([a-z_]+)\\).*" "${PROJECT_BINARY_DIR}/man/man1/gradpool-\\1.1" page ${line})
  list(APPEND pages ${page})
endforeach()
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/man/man1 ${PROJECT_BINARY_DIR}/man/man8 ${PROJECT_BINARY_DIR}/completion)
add_custom_command(OUTPUT ${pages} COMMAND gradpool_manual man ${guide} ${PROJECT_BINARY_DIR}/man/man1
  DEPENDS gradpool_manual ${guide} VERBATIM)
foreach(daemon gradpool-scheduler gradpool-worker)
  set(page ${PROJECT_BINARY_DIR}/man/man8/${daemon}.8)
  add_custom_command(OUTPUT ${page} COMMAND ${daemon} --help | $<TARGET_FILE:gradpool_manual> daemon ${daemon} > ${page}
    DEPENDS gradpool_manual ${daemon} VERBATIM)
  list(APPEND daemon_pages ${page})
endforeach()
foreach(shell bash zsh fish)
  set(script ${PROJECT_BINARY_DIR}/completion/gradpool.${shell})
  add_custom_command(OUTPUT ${script} COMMAND gradpool_manual ${shell} ${folder}/gradpool.${shell}.in > ${script}
    DEPENDS gradpool_manual ${folder}/gradpool.${shell}.in VERBATIM)
  list(APPEND scripts ${script})
endforeach()
add_custom_target(manual ALL DEPENDS ${pages} ${daemon_pages} ${scripts})

install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${daemon_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man8)
install(FILES ${PROJECT_BINARY_DIR}/completion/gradpool.bash RENAME gradpool
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${PROJECT_BINARY_DIR}/completion/gradpool.zsh RENAME _gradpool
  DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${PROJECT_BINARY_DIR}/completion/gradpool.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
