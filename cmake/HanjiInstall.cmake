# `cmake --install` gives the libraries, their headers, the command, find_package(hanji) and pkg-config.
include(CMakePackageConfigHelpers)

set(_targets hanji_core hanji_core_dependencies)
if(NOT HANJI_CORE_ONLY)
  list(APPEND _targets hanji)
  install(TARGETS hanji_cli RUNTIME)
  # INSTALL_RPATH_USE_LINK_PATH leaves out what lies inside the project, and .venv does.
  set_target_properties(hanji_cli PROPERTIES INSTALL_RPATH ${Libtorch_ROOT}/lib)
endif()
set_target_properties(hanji_core PROPERTIES EXPORT_NAME core)
set_target_properties(hanji_core_dependencies PROPERTIES EXPORT_NAME core_dependencies)
install(TARGETS ${_targets} EXPORT hanjiTargets ARCHIVE FILE_SET HEADERS)
install(EXPORT hanjiTargets NAMESPACE hanji:: FILE hanjiTargets.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/hanji)

configure_package_config_file(cmake/hanjiConfig.cmake.in generated/hanjiConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/hanji)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/hanjiConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/generated/hanjiConfig.cmake
              ${PROJECT_BINARY_DIR}/generated/hanjiConfigVersion.cmake cmake/FindLibtorch.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/hanji)

configure_file(cmake/hanji.pc.in generated/hanji.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/generated/hanji.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
