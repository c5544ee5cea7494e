# Everything that hanji is built from, all Debian 12 packages; torch comes from FindLibtorch.cmake.
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing)
pkg_check_modules(FMT REQUIRED IMPORTED_TARGET fmt)
find_path(HANJI_XXHASH_INCLUDE xxhash.h REQUIRED)
find_path(HANJI_TOMLPP_INCLUDE toml++/toml.h REQUIRED)
find_path(HANJI_JSON_INCLUDE nlohmann/json.hpp REQUIRED)

# Private to our sources: none of these headers may appear in a public header of ours.
add_library(hanji_core_dependencies INTERFACE)
target_compile_definitions(hanji_core_dependencies INTERFACE XXH_INLINE_ALL)
target_link_libraries(hanji_core_dependencies INTERFACE OpenSSL::Crypto PkgConfig::FMT
  PkgConfig::HWLOC PkgConfig::HWY PkgConfig::URING)

if((HANJI_FUZZ OR NOT HANJI_CORE_ONLY) AND NOT HANJI_PYTHON)  # the parsers of samples are fuzzed too
  pkg_check_modules(JPEG REQUIRED IMPORTED_TARGET libjpeg)
  pkg_check_modules(PNG REQUIRED IMPORTED_TARGET libpng)
endif()
if(NOT HANJI_CORE_ONLY)
  find_package(Libtorch 2.11 REQUIRED)
  # torch brings headers of another fmt without its library; the installed one's come first.
  pkg_get_variable(_fmt_includes fmt includedir)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/generated/own)
  file(CREATE_LINK ${_fmt_includes}/fmt ${PROJECT_BINARY_DIR}/generated/own/fmt SYMBOLIC)
  target_include_directories(hanji_core_dependencies INTERFACE
    $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated/own>)
endif()

# MPI is optional: without it groups over MPI are refused. Python's backend does not carry it around.
set(HANJI_MPI_FOUND FALSE)
set(HANJI_MPIRUN)
if(HANJI_MPI AND NOT HANJI_CORE_ONLY AND NOT HANJI_PYTHON)
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI QUIET COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    set(HANJI_MPI_FOUND TRUE)
    set(HANJI_MPI_INCLUDES ${MPI_CXX_INCLUDE_DIRS})
    set(HANJI_MPI_LIBRARIES ${MPI_CXX_LIBRARIES})
    list(FILTER HANJI_MPI_LIBRARIES EXCLUDE REGEX "mpi_cxx")
    set(HANJI_MPIRUN ${MPIEXEC_EXECUTABLE})
    execute_process(COMMAND ${MPIEXEC_EXECUTABLE} --version OUTPUT_VARIABLE _version ERROR_QUIET)
    if(_version MATCHES "Open MPI|OpenRTE")
      list(APPEND HANJI_MPIRUN --allow-run-as-root --oversubscribe)
    endif()
    message(STATUS "MPI: ${HANJI_MPI_LIBRARIES}")
  else()
    message(STATUS "MPI: not found (libopenmpi-dev); groups over MPI are refused, not tested")
  endif()
endif()
