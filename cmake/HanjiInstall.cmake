# `cmake --install` gives the libraries, their headers, the command with man pages and completion, docs/,
# find_package(hanji) and pkg-config.
include(CMakePackageConfigHelpers)

set(_targets hanji_core hanji_core_dependencies)
if(NOT HANJI_CORE_ONLY)
  list(APPEND _targets hanji)
  install(TARGETS hanji_cli RUNTIME)
  # INSTALL_RPATH_USE_LINK_PATH leaves out what lies inside the project, and .venv does.
  set_target_properties(hanji_cli PROPERTIES INSTALL_RPATH ${Libtorch_ROOT}/lib)
  # The command says what they are, so they are made when it is installed.
  install(CODE "execute_process(COMMAND bash ${PROJECT_SOURCE_DIR}/tools/man_pages.sh
    $<TARGET_FILE:hanji_cli> ${PROJECT_BINARY_DIR}/generated/share COMMAND_ERROR_IS_FATAL ANY)")
  install(DIRECTORY ${PROJECT_BINARY_DIR}/generated/share/ DESTINATION ${CMAKE_INSTALL_DATAROOTDIR})
endif()
install(FILES README.md CHANGELOG.md CITATION.cff LICENSE SECURITY.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
set_target_properties(hanji_core PROPERTIES EXPORT_NAME core)
set_target_properties(hanji_core_dependencies PROPERTIES EXPORT_NAME core_dependencies)
install(TARGETS ${_targets} EXPORT hanjiTargets ARCHIVE FILE_SET HEADERS)
install(EXPORT hanjiTargets NAMESPACE hanji:: FILE hanjiTargets.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/hanji)

string(REGEX MATCH "^[0-9]+[.][0-9]+" HANJI_TORCH_MINOR "${Libtorch_VERSION}")
configure_package_config_file(cmake/hanjiConfig.cmake.in generated/hanjiConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/hanji)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/hanjiConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/generated/hanjiConfig.cmake
              ${PROJECT_BINARY_DIR}/generated/hanjiConfigVersion.cmake cmake/FindLibtorch.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/hanji)

# The same of the build itself, where find_package() looks below build/dev: `hanji exercise` compiles against it.
set(_of_build ${PROJECT_BINARY_DIR}/lib/cmake/hanji)
export(EXPORT hanjiTargets NAMESPACE hanji:: FILE ${_of_build}/hanjiTargets.cmake)
file(COPY ${PROJECT_BINARY_DIR}/generated/hanjiConfig.cmake ${PROJECT_BINARY_DIR}/generated/hanjiConfigVersion.cmake
          ${PROJECT_SOURCE_DIR}/cmake/FindLibtorch.cmake DESTINATION ${_of_build})

set(HANJI_PC_MPI)  # the library calls it, a program that makes no group over MPI does not load it
if(HANJI_MPI_FOUND)
  list(JOIN HANJI_MPI_LIBRARIES " " HANJI_PC_MPI)
  string(PREPEND HANJI_PC_MPI "-Wl,--push-state,--as-needed ")
  string(APPEND HANJI_PC_MPI " -Wl,--pop-state ")
endif()
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(HANJI_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
else()  # from where the file lies, for `cmake --install --prefix` names another one
  file(RELATIVE_PATH HANJI_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  string(PREPEND HANJI_PC_PREFIX "\${pcfiledir}/")
endif()
configure_file(cmake/hanji.pc.in generated/hanji.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/generated/hanji.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
