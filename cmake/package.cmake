# Installed package files for other projects: find_package(gradpool) and pkg-config gradpool.
include(CMakePackageConfigHelpers)
set(GP_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/gradpool)

# Everything that `cmake --install` copies.
add_custom_target(product DEPENDS gradpool gradpool_cli gradpool-scheduler gradpool-worker manual)

install(TARGETS gradpool gradpool_tasks EXPORT gradpoolTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT gradpoolTargets NAMESPACE gradpool:: DESTINATION ${GP_CMAKE_DIR})
configure_package_config_file(cmake/gradpoolConfig.cmake.in ${PROJECT_BINARY_DIR}/cmake/gradpoolConfig.cmake
  INSTALL_DESTINATION ${GP_CMAKE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cmake/gradpoolConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cmake/gradpoolConfig.cmake ${PROJECT_BINARY_DIR}/cmake/gradpoolConfigVersion.cmake
  cmake/gradpoolTasks.cmake DESTINATION ${GP_CMAKE_DIR})

# A unit for systemd --user. It names the programs by absolute paths, which are known when `cmake --install` runs. systemd
# searches share below ~/.local, /usr/local and /usr; packages pass -DGP_USER_UNIT_DIR=lib/systemd/user.
set(GP_USER_UNIT_DIR ${CMAKE_INSTALL_DATADIR}/systemd/user CACHE STRING "Folder of the systemd user unit below the prefix")
configure_file(cmake/installUserUnit.cmake.in ${PROJECT_BINARY_DIR}/cmake/installUserUnit.cmake @ONLY)
install(SCRIPT ${PROJECT_BINARY_DIR}/cmake/installUserUnit.cmake)

# A relative path, so that a prefix given at install time is respected.
file(RELATIVE_PATH GP_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
# Programs find the library without LD_LIBRARY_PATH, except in packages of a distribution.
set(GP_PC_RPATH "-Wl,-rpath,\${libdir} ")
if(CMAKE_SKIP_RPATH)
  set(GP_PC_RPATH "")
endif()
configure_file(cmake/gradpool.pc.in ${PROJECT_BINARY_DIR}/cmake/gradpool.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/cmake/gradpool.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The same layout as in the repository, so that help texts name docs/PAGE.md and links between the pages work.
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
