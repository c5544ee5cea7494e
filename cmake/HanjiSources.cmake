# How sources are compiled. Most of a source's time goes into the headers it reads, so with
# HANJI_UNITY those that read the same are compiled together. Sources of one group have
#   - one weight, that of the heaviest header they reach: 0 none of torch's, 1 tensors and single
#     operations, 2 modules, autograd and c10d: two to five times as long, and where they are
#     precompiled (HANJI_PCH) only these sources read them so,
#   - one temperature: hot ones run within a step or move bytes (-O3), the others are cold (-O1),
#   - one target, but any of its floors: unnamed namespaces hold names apart that differ in floor
#     or in name.
# Without HANJI_UNITY each source is compiled by itself, with the same options.
set(HANJI_GROUP_BYTES 130000)  # of sources: short enough that two cores finish at the same time

# Sets `out` to the weight of a file, which is the largest of all that it includes.
function(hanji_weight out file)
  get_property(weight GLOBAL PROPERTY "hanji_weight ${file}")
  if("${weight}" STREQUAL "")
    set(weight 0)
    set_property(GLOBAL PROPERTY "hanji_weight ${file}" 0)  # ends at a file that includes itself
    file(STRINGS ${file} lines REGEX "^#include [<\"]")
    foreach(line IN LISTS lines)
      set(its 0)
      if(line MATCHES "<(torch/(nn|data|serialize|types.h|optim/[^o]|csrc/(autograd|distributed))|ATen/(ATen|TensorOperators).h)")
        set(its 2)
      elseif(line MATCHES "<(torch|ATen|c10)/")
        set(its 1)
      elseif(line MATCHES "\"(hanji/[^\"]+)\"" AND EXISTS ${PROJECT_SOURCE_DIR}/${CMAKE_MATCH_1})
        hanji_weight(its ${PROJECT_SOURCE_DIR}/${CMAKE_MATCH_1})
      endif()
      if(its GREATER weight)
        set(weight ${its})
      endif()
    endforeach()
    set_property(GLOBAL PROPERTY "hanji_weight ${file}" ${weight})
  endif()
  set(${out} ${weight} PARENT_SCOPE)
endfunction()

function(hanji_add_source target file weight heat)
  target_sources(${target} PRIVATE ${file})
  if(heat STREQUAL "hot")
    set_property(SOURCE ${file} TARGET_DIRECTORY ${target} APPEND PROPERTY
      COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>)
  endif()
  get_target_property(header ${target} PRECOMPILE_HEADERS_REUSE_FROM)
  # A precompiled header serves the level of optimisation that it was compiled at.
  if((weight LESS 2 OR heat STREQUAL "hot") AND NOT header STREQUAL "hanji_test_header")
    set_property(SOURCE ${file} TARGET_DIRECTORY ${target} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
  endif()
endfunction()

# Keeps SOURCES for `target` until hanji_compile_together(). HOT names those that are hot; ALONE
# those that include themselves or share names with a neighbour. What has definitions or folders of its own stays alone, too.
# TOGETHER are sources that join no others, with the folders of the first.
function(hanji_sources target)
  cmake_parse_arguments(S "" "" "SOURCES;HOT;ALONE;TOGETHER" ${ARGN})
  foreach(source IN LISTS S_SOURCES S_TOGETHER)
    cmake_path(ABSOLUTE_PATH source NORMALIZE OUTPUT_VARIABLE file)
    get_source_file_property(folders ${file} TARGET_DIRECTORY ${target} INCLUDE_DIRECTORIES)
    get_source_file_property(definitions ${file} TARGET_DIRECTORY ${target} COMPILE_DEFINITIONS)
    hanji_weight(weight ${file})
    set(heat cold)
    if(source IN_LIST S_HOT)
      set(heat hot)
    endif()
    set(group ${heat}_${weight})
    if(source IN_LIST S_TOGETHER)
      cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME floor)
      string(APPEND group _${floor})
    elseif(folders OR definitions OR source IN_LIST S_ALONE)
      set(group)
    endif()
    if(HANJI_UNITY AND group)
      set_property(GLOBAL APPEND PROPERTY "hanji_groups ${target}" ${group})
      set_property(GLOBAL APPEND PROPERTY "hanji_group ${target} ${group}" ${file})
    else()
      hanji_add_source(${target} ${file} ${weight} ${heat})
    endif()
  endforeach()
endfunction()

# Adds what hanji_sources() has kept for `target`, in groups of about equal size.
function(hanji_compile_together target)
  get_property(groups GLOBAL PROPERTY "hanji_groups ${target}")
  list(REMOVE_DUPLICATES groups)
  foreach(group IN LISTS groups)
    get_property(files GLOBAL PROPERTY "hanji_group ${target} ${group}")
    set(total 0)
    foreach(file IN LISTS files)
      file(SIZE ${file} size)
      math(EXPR total "${total} + ${size}")
    endforeach()
    math(EXPR parts "(${total} + ${HANJI_GROUP_BYTES} - 1) / ${HANJI_GROUP_BYTES}")
    math(EXPR full "${total} / ${parts}")
    set(sum 0)
    set(batch)
    list(GET files -1 last)
    foreach(file IN LISTS files)
      file(SIZE ${file} size)
      math(EXPR sum "${sum} + ${size}")
      list(APPEND batch ${file})
      if(sum GREATER_EQUAL full OR file STREQUAL last)
        hanji_add_group(${target} ${group} ${parts} ${batch})
        math(EXPR parts "${parts} - 1")
        set(sum 0)
        set(batch)
      endif()
    endforeach()
  endforeach()
endfunction()

# Adds one source that includes `ARGN`.
function(hanji_add_group target group number)
  set(content)
  foreach(file IN LISTS ARGN)
    # By its place under the root, so that the compiler's cache serves every clone.
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE place)
    string(APPEND content "#include \"${place}\"\n")
  endforeach()
  set(together ${PROJECT_BINARY_DIR}/generated/together/${target}_${group}_${number}.cpp)
  file(CONFIGURE OUTPUT ${together} CONTENT "${content}" @ONLY)
  list(GET ARGN 0 first)
  hanji_weight(weight ${first})
  string(REGEX MATCH "^[a-z]+" heat ${group})
  hanji_add_source(${target} ${together} ${weight} ${heat})
  get_source_file_property(folders ${first} TARGET_DIRECTORY ${target} INCLUDE_DIRECTORIES)
  if(folders)
    set_property(SOURCE ${together} TARGET_DIRECTORY ${target} PROPERTY INCLUDE_DIRECTORIES ${folders})
  endif()
endfunction()
