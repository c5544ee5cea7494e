# One floor of the house: its public headers, private headers, sources and tests.
#
#   hanji_floor(shm CORE HEADERS engine.h SOURCES engine.cpp TESTS engine_test.cpp)
#
# CORE adds to hanji_core (torch is not on its include path), TORCH adds to hanji.
# HOT, ALONE and TOGETHER name SOURCES (ALONE also TESTS) that hanji_sources() treats so; few are.
# HEADERS are installed and compiled alone; PRIVATE_HEADERS are neither.
# TESTS become the one test binary of the floor, hanji_<floor>_test; ctest runs it as <floor>, or in
# SHARDS processes, each with its part of the cases, as <floor>_1, <floor>_2 and so on.
#
# hanji_configure_target(target [LEVEL]): the level of optimisation of a Release, -O1 if it is not given.
function(hanji_configure_target target)
  set(level -O1)
  if(ARGC GREATER 1)
    set(level ${ARGV1})
  endif()
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  # A trade of speed for one fixed rounding: a*b+c is never contracted behind our back.
  target_compile_options(${target} PRIVATE -Wall -Wextra -ffp-contract=off $<$<CONFIG:Release>:${level}>
    -Wno-missing-field-initializers  # a member that an initializer does not name has its default
    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>  # false alarms of GCC 12 on string concatenation
    # No collection of garbage below 1 GB: a sixth of the time of a source that reads torch.
    $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1048576>
    $<$<BOOL:${HANJI_WERROR}>:-Werror>)
  if(HANJI_SANITIZE)
    target_compile_options(${target} PUBLIC -fsanitize=${HANJI_SANITIZE} -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${HANJI_SANITIZE})
  endif()
endfunction()

# Configures a program, or a part of one, that reads the precompiled header of `other`, at its level of optimisation.
function(hanji_configure_program target other)
  set(level -O1)
  if(other STREQUAL "hanji_test_header")
    set(level -O0)  # half of the time that a core floor's tests take at -O1
  endif()
  hanji_configure_target(${target} ${level})
  target_link_libraries(${target} PRIVATE hanji_core_dependencies)
  if(HANJI_PCH)
    # The header has -fPIC; with an executable's -fPIE it would be read anew.
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
    target_precompile_headers(${target} REUSE_FROM ${other})
  endif()
endfunction()

# Registers those cases of a test program that need a GPU as the test `name`, of label gpu; SKIPPED without one.
function(hanji_gpu_test name program cases)
  add_test(NAME ${name} COMMAND ${program} --gtest_filter=${cases})
  set_tests_properties(${name} PROPERTIES LABELS gpu SKIP_REGULAR_EXPRESSION "no GPU here")
  add_dependencies(hanji_gpu ${program})
endfunction()

function(hanji_floor floor kind)
  cmake_parse_arguments(F "" "SHARDS" "HEADERS;PRIVATE_HEADERS;SOURCES;HOT;ALONE;TOGETHER;TESTS;TEST_LIBRARIES"
    ${ARGN})
  if(F_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "hanji_floor(${floor}): unknown arguments ${F_UNPARSED_ARGUMENTS}")
  endif()
  if(kind STREQUAL "CORE")
    set(target hanji_core)
    set(header hanji_test_header)
  elseif(kind STREQUAL "TORCH")
    set(target hanji)
    set(header hanji)
  else()
    message(FATAL_ERROR "hanji_floor(${floor}): kind is CORE or TORCH, not '${kind}'")
  endif()
  string(REPLACE "/" "_" name ${floor})
  hanji_sources(${target} SOURCES ${F_SOURCES} HOT ${F_HOT} ALONE ${F_ALONE} TOGETHER ${F_TOGETHER})
  list(TRANSFORM F_HEADERS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}
                 FILES ${F_HEADERS})
  if(HANJI_TESTS AND F_TESTS)
    set(test hanji_${name}_test)
    add_executable(${test})
    hanji_configure_program(${test} ${header})
    target_link_libraries(${test} PRIVATE ${target} ${F_TEST_LIBRARIES} GTest::gmock GTest::gtest_main)
    hanji_sources(${test} SOURCES ${F_TESTS} ALONE ${F_ALONE})
    hanji_compile_together(${test})
    set(limit 300)
    if(HANJI_SANITIZE)  # everything takes some times as long
      set(limit 1800)
    endif()
    if(NOT F_SHARDS)
      set(F_SHARDS 1)
    endif()
    foreach(shard RANGE 1 ${F_SHARDS})
      math(EXPR index "${shard} - 1")
      set(case ${floor}_${shard})
      if(F_SHARDS EQUAL 1)
        set(case ${floor})
      endif()
      add_test(NAME ${case} COMMAND ${test})
      set_tests_properties(${case} PROPERTIES TIMEOUT ${limit}
        ENVIRONMENT "GTEST_TOTAL_SHARDS=${F_SHARDS};GTEST_SHARD_INDEX=${index}")
    endforeach()
  endif()
endfunction()
