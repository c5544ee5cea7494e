# Finds libtorch and defines hanji::libtorch, which links its libraries directly: TorchConfig.cmake
# of a CUDA build asks for a CUDA toolkit that running on libtorch does not need.
#
# Looks in HANJI_TORCH, which must have one if it is set, then CMAKE_PREFIX_PATH, then the project's
# .venv. Sets Libtorch_ROOT, Libtorch_VERSION and Libtorch_HAS_GLOO.
set(_candidates ${HANJI_TORCH} $ENV{HANJI_TORCH})
foreach(_dir IN LISTS _candidates)
  if(NOT EXISTS ${_dir}/lib/libtorch_cpu.so OR NOT EXISTS ${_dir}/include/ATen/core/Tensor.h)
    message(FATAL_ERROR "HANJI_TORCH is ${_dir}, which is no folder of libtorch (lib/libtorch_cpu.so and \
include/ATen/core/Tensor.h): set it to one, or unset it to take the libtorch of .venv")
  endif()
endforeach()
file(GLOB _venv ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
foreach(_prefix IN LISTS CMAKE_PREFIX_PATH)
  list(APPEND _candidates ${_prefix} ${_prefix}/../..)
endforeach()
list(APPEND _candidates ${_venv})

foreach(_dir IN LISTS _candidates)
  if(EXISTS ${_dir}/lib/libtorch_cpu.so AND EXISTS ${_dir}/include/ATen/core/Tensor.h)
    get_filename_component(Libtorch_ROOT ${_dir} REALPATH)
    break()
  endif()
endforeach()

if(Libtorch_ROOT)
  set(_header ${Libtorch_ROOT}/include/torch/headeronly/version.h)
  if(NOT EXISTS ${_header})
    set(_header ${Libtorch_ROOT}/include/torch/csrc/api/include/torch/version.h)
  endif()
  file(STRINGS ${_header} _lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
  string(REGEX MATCHALL "[0-9]+" _numbers "${_lines}")
  list(JOIN _numbers "." Libtorch_VERSION)
  set(Libtorch_HAS_GLOO FALSE)
  if(EXISTS ${Libtorch_ROOT}/share/cmake/Caffe2/Caffe2Targets.cmake)
    file(STRINGS ${Libtorch_ROOT}/share/cmake/Caffe2/Caffe2Targets.cmake _gloo REGEX "USE_C10D_GLOO")
    if(_gloo)
      set(Libtorch_HAS_GLOO TRUE)
    endif()
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libtorch REQUIRED_VARS Libtorch_ROOT VERSION_VAR Libtorch_VERSION
  REASON_FAILURE_MESSAGE "set HANJI_TORCH to a libtorch folder, or run ./dev build, which installs one")

if(Libtorch_FOUND AND NOT TARGET hanji::libtorch)
  add_library(hanji::libtorch INTERFACE IMPORTED)
  set(_libraries)
  # Of a CUDA build nothing names a symbol of the GPU's half, which registers itself when loaded.
  set(_names c10 torch_cpu torch)
  if(EXISTS ${Libtorch_ROOT}/lib/libtorch_cuda.so)
    list(APPEND _names c10_cuda torch_cuda)
    set_property(TARGET hanji::libtorch PROPERTY INTERFACE_LINK_OPTIONS
      "LINKER:--no-as-needed" "LINKER:--unresolved-symbols=ignore-in-shared-libs")
  endif()
  foreach(_name IN LISTS _names)
    add_library(hanji::libtorch_${_name} SHARED IMPORTED)
    set_target_properties(hanji::libtorch_${_name} PROPERTIES
      IMPORTED_LOCATION ${Libtorch_ROOT}/lib/lib${_name}.so)
    list(APPEND _libraries hanji::libtorch_${_name})
  endforeach()
  set_target_properties(hanji::libtorch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${Libtorch_ROOT}/include;${Libtorch_ROOT}/include/torch/csrc/api/include"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${Libtorch_ROOT}/include;${Libtorch_ROOT}/include/torch/csrc/api/include"
    INTERFACE_COMPILE_FEATURES cxx_std_20
    INTERFACE_LINK_LIBRARIES "${_libraries}")
endif()
