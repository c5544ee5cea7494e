# One floor of the house: its public headers, private headers, sources and tests.
#
#   hanji_floor(shm CORE HEADERS engine.h SOURCES engine.cpp TESTS engine_test.cpp)
#
# CORE adds to hanji_core (torch is not on its include path), TORCH adds to hanji.
# LIGHT_SOURCES are compiled without the precompiled header: they read few of torch's headers, and
# its templates, instantiated in every source, cost more than that.
# COLD floors decide, start and tell; none of their code runs within a step. They are compiled with
# -O1, in two thirds of the time.
# HEADERS are installed and compiled alone; PRIVATE_HEADERS are neither.
# TESTS become the one test binary of the floor, hanji_<floor>_test.
function(hanji_configure_target target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  # A trade of speed for one fixed rounding: a*b+c is never contracted behind our back.
  target_compile_options(${target} PRIVATE -Wall -Wextra -ffp-contract=off
    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>  # false alarms of GCC 12 on string concatenation
    # No collection of garbage below 1 GB: a sixth of the time of a source that reads torch.
    $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1048576>
    $<$<BOOL:${HANJI_WERROR}>:-Werror>)
  if(HANJI_SANITIZE)
    target_compile_options(${target} PUBLIC -fsanitize=${HANJI_SANITIZE} -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${HANJI_SANITIZE})
  endif()
endfunction()

# With HANJI_UNITY, sets `out` to sources that include SOURCES, SIZE at a time (6 unless told), for
# most of a source's time goes into headers; what is compiled with definitions or folders of its own
# stays, and so does what is named in ALONE: its unnamed namespace shares a name with a neighbour's,
# or it includes itself. Without, sets it to SOURCES.
function(hanji_together out target name)
  cmake_parse_arguments(T "" "SIZE" "SOURCES;ALONE" ${ARGN})
  if(NOT T_SIZE)
    set(T_SIZE 6)
  endif()
  if(NOT HANJI_UNITY)
    set(${out} ${T_SOURCES} PARENT_SCOPE)
    return()
  endif()
  set(files)
  set(together)
  foreach(source IN LISTS T_SOURCES)
    get_source_file_property(folders ${source} TARGET_DIRECTORY ${target} INCLUDE_DIRECTORIES)
    get_source_file_property(definitions ${source} TARGET_DIRECTORY ${target} COMPILE_DEFINITIONS)
    if(folders OR definitions OR source IN_LIST T_ALONE)
      list(APPEND files ${source})
    else()
      list(APPEND together ${CMAKE_CURRENT_SOURCE_DIR}/${source})
    endif()
  endforeach()
  list(LENGTH together rest)
  set(start 0)
  while(start LESS rest)
    list(SUBLIST together ${start} ${T_SIZE} batch)
    list(TRANSFORM batch REPLACE "(.+)" "#include \"\\1\"\n")
    list(JOIN batch "" content)
    set(file ${PROJECT_BINARY_DIR}/generated/together/${name}_${start}.cpp)
    file(CONFIGURE OUTPUT ${file} CONTENT "${content}" @ONLY)
    list(APPEND files ${file})
    math(EXPR start "${start} + ${T_SIZE}")
  endwhile()
  set(${out} ${files} PARENT_SCOPE)
endfunction()

function(hanji_floor floor kind)
  cmake_parse_arguments(F "COLD" ""
    "HEADERS;PRIVATE_HEADERS;SOURCES;LIGHT_SOURCES;ALONE;TESTS;TEST_LIBRARIES" ${ARGN})
  if(F_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "hanji_floor(${floor}): unknown arguments ${F_UNPARSED_ARGUMENTS}")
  endif()
  if(kind STREQUAL "CORE")
    set(target hanji_core)
    set(header hanji_test_header)
    set(size 6)
  elseif(kind STREQUAL "TORCH")
    set(target hanji)
    set(header hanji)
    set(size 10)  # torch's headers weigh more
  else()
    message(FATAL_ERROR "hanji_floor(${floor}): kind is CORE or TORCH, not '${kind}'")
  endif()
  string(REPLACE "/" "_" name ${floor})
  hanji_together(F_SOURCES ${target} ${name} SIZE ${size} SOURCES ${F_SOURCES} ALONE ${F_ALONE})
  hanji_together(F_LIGHT_SOURCES ${target} ${name}_light SIZE ${size} SOURCES ${F_LIGHT_SOURCES}
    ALONE ${F_ALONE})
  list(TRANSFORM F_HEADERS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  target_sources(${target} PRIVATE ${F_SOURCES} ${F_LIGHT_SOURCES})
  if(F_LIGHT_SOURCES)
    set_source_files_properties(${F_LIGHT_SOURCES} TARGET_DIRECTORY ${target}
      PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  endif()
  if(F_COLD)
    set_property(SOURCE ${F_SOURCES} ${F_LIGHT_SOURCES} TARGET_DIRECTORY ${target}
      APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-O1>)
  endif()
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}
                 FILES ${F_HEADERS})
  if(HANJI_TESTS AND F_TESTS)
    set(test hanji_${name}_test)
    add_executable(${test})
    hanji_together(F_TESTS ${test} ${test} SIZE ${size} SOURCES ${F_TESTS} ALONE ${F_ALONE})
    target_sources(${test} PRIVATE ${F_TESTS})
    hanji_configure_target(${test})
    target_link_libraries(${test} PRIVATE ${target} hanji_core_dependencies ${F_TEST_LIBRARIES}
                          GTest::gmock GTest::gtest_main)
    # What is tested is built as users get it; the tests themselves are compiled a quarter faster so.
    target_compile_options(${test} PRIVATE $<$<CONFIG:Release>:-O1>)
    if(HANJI_PCH)
      # The header was compiled with -fPIC; with an executable's -fPIE it would be read anew.
      set_target_properties(${test} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${test} PRIVATE -fPIC)
      target_precompile_headers(${test} REUSE_FROM ${header})
    endif()
    add_test(NAME ${floor} COMMAND ${test})
    set_tests_properties(${floor} PROPERTIES TIMEOUT 300)
  endif()
endfunction()
