# Everything that hanji is built from, all Debian 12 packages; torch comes from FindLibtorch.cmake.
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
find_path(HANJI_XXHASH_INCLUDE xxhash.h REQUIRED)
find_path(HANJI_TOMLPP_INCLUDE toml++/toml.h REQUIRED)
find_path(HANJI_JSON_INCLUDE nlohmann/json.hpp REQUIRED)

# Private to our sources: none of these headers may appear in a public header of ours.
add_library(hanji_core_dependencies INTERFACE)
target_compile_definitions(hanji_core_dependencies INTERFACE FMT_HEADER_ONLY XXH_INLINE_ALL)
target_link_libraries(hanji_core_dependencies INTERFACE OpenSSL::Crypto PkgConfig::HWLOC PkgConfig::HWY)

if(NOT HANJI_CORE_ONLY)
  find_package(Libtorch REQUIRED)
endif()
