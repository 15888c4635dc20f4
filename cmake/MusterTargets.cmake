# The compiler flags of every target.
add_library(muster_flags INTERFACE)
target_include_directories(muster_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(muster_flags INTERFACE -Wall -Wextra -Wpedantic -Werror=switch -Wno-missing-field-initializers
                       # GCC 12 reports false overflows and overlaps in inlined fmt and
                       # std::string.
                       -Wno-array-bounds -Wno-stringop-overflow -Wno-restrict)
if(MUSTER_ARCH)
  target_compile_options(muster_flags INTERFACE -march=${MUSTER_ARCH})
endif()
if(MUSTER_SANITIZE)
  add_compile_options(-fsanitize=${MUSTER_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${MUSTER_SANITIZE})
endif()

# Code that reads settings, prints or tests is compiled with -O1, which is faster to build. Arithmetic
# and the code of a step stay at -O3, however short, because the bits of a multiply and an add depend on
# it.
set(cold -O1)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # The precompiled headers' -O2 or -O3 sets these, and GCC reads them only with the same.
  string(APPEND cold $<SEMICOLON>-munroll-only-small-loops$<SEMICOLON>-mvzeroupper)
endif()
set(MUSTER_COLD $<$<CONFIG:Release>:${cold}>)

# Several files are compiled at once (unity builds): a batch reads its headers once. Large batches take the
# least time on few cores, small ones keep many cores busy.
cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
set(MUSTER_UNITY_BATCH 8)
if(cores LESS_EQUAL 4)
  set(MUSTER_UNITY_BATCH 32)
endif()

function(muster_unity target)
  if(MUSTER_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${MUSTER_UNITY_BATCH})
  endif()
endfunction()

# The headers of the standard library, fmt, JSON and Protobuf that most sources include, precompiled once. They change
# with the system only.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/muster_headers.cc CONTENT "")
add_library(muster_headers OBJECT ${CMAKE_BINARY_DIR}/muster_headers.cc)
target_link_libraries(muster_headers PRIVATE muster_flags fmt::fmt nlohmann_json::nlohmann_json protobuf::libprotobuf)
target_precompile_headers(muster_headers PRIVATE
  <algorithm> <atomic> <chrono> <cmath> <condition_variable> <filesystem> <functional> <iomanip> <iostream> <map>
  <mutex> <optional> <span> <sstream> <string> <thread> <unordered_map> <variant> <vector>
  <fmt/core.h> <nlohmann/json.hpp>
  <google/protobuf/extension_set.h> <google/protobuf/generated_enum_reflection.h> <google/protobuf/map_field_inl.h>
  <google/protobuf/message.h> <google/protobuf/repeated_field.h> <google/protobuf/unknown_field_set.h>)

# muster_library(NAME [SEPARATE] SOURCES ... [DEPS ...]): a static library of one folder. SEPARATE
# compiles its files one by one, so that the bits of its arithmetic do not depend on other files.
function(muster_library name)
  cmake_parse_arguments(ARG "SEPARATE" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  if(NOT ARG_SEPARATE)
    muster_unity(${name})
    target_precompile_headers(${name} REUSE_FROM muster_headers)
  endif()
  target_link_libraries(${name} PUBLIC muster_flags ${ARG_DEPS})
endfunction()

# muster_program(NAME SOURCES ... [DEPS ...]): an installed program.
function(muster_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  muster_unity(${name})
  target_link_libraries(${name} PRIVATE muster_flags muster_processor ${ARG_DEPS})
  muster_portable(${name})
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

# The label of the tests that continuous integration runs under this build's sanitizer. They are one program,
# LABEL_test, so that it need not build the other files of their folders.
set(MUSTER_SANITIZED_LABEL "")
if(MUSTER_SANITIZE MATCHES thread)
  set(MUSTER_SANITIZED_LABEL threads)
elseif(MUSTER_SANITIZE MATCHES address)
  set(MUSTER_SANITIZED_LABEL parsing)
endif()

# muster_test_program(PROGRAM [SOURCES]): a program of tests.
function(muster_test_program program)
  add_executable(${program} ${ARGN})
  target_link_libraries(${program} PRIVATE muster_flags GTest::gtest GTest::gmock test_main test_paths)
  target_compile_options(${program} PRIVATE ${MUSTER_COLD})
  if(MUSTER_COLD)
    target_precompile_headers(${program} REUSE_FROM gtest_headers)
  endif()
endfunction()

# muster_sanitized_test(FOLDER SOURCES): adds the tests of a folder to LABEL_test, compiled twelve at once: GCC's time
# and memory grow faster than a file with sanitizers does.
function(muster_sanitized_test folder)
  set(program ${MUSTER_SANITIZED_LABEL}_test)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE sources)
  target_sources(${program} PRIVATE ${sources})
  if(MUSTER_UNITY)
    set_target_properties(${program} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    set(count 0)
    foreach(source ${sources})
      math(EXPR group "${count} / 12")
      math(EXPR count "${count} + 1")
      set_property(SOURCE ${source} TARGET_DIRECTORY ${program} PROPERTY UNITY_GROUP ${folder}_${group})
    endforeach()
  endif()
endfunction()

# muster_label(LABEL TARGETS ...): adds targets to those that the target tests_LABEL builds.
function(muster_label label)
  if(NOT TARGET tests_${label})
    add_custom_target(tests_${label})
  endif()
  add_dependencies(tests_${label} ${ARGN})
endfunction()

# muster_suites(RESULT LIST FILE): a filter for GoogleTest that selects the suites that FILE defines, except those in
# the variable LIST, to which it adds them. CMake runs again when FILE changes.
function(muster_suites result list_of_taken file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(STRINGS ${file} lines REGEX "^(TYPED_)?TEST(_[FP])?\\(")
  list(TRANSFORM lines REPLACE "^[A-Z_]+\\(([A-Za-z0-9_]+),.*" "\\1")
  list(REMOVE_DUPLICATES lines)
  list(REMOVE_ITEM lines "" ${${list_of_taken}})
  set(${list_of_taken} ${${list_of_taken}} ${lines} PARENT_SCOPE)
  # With a prefix for each instantiation of a parameterised suite, and a suffix for each type.
  list(TRANSFORM lines REPLACE "(.+)" "\\1.*:\\1/*:*/\\1.*")
  list(JOIN lines ":" lines)
  set(${result} "${lines}" PARENT_SCOPE)  # unset if it were empty without quotes
endfunction()

# muster_test(FOLDER LABEL TIMEOUT [SEPARATE] SOURCES ... [EACH FILES ...] [DEPS ...] [NEEDS ...]): the program FOLDER_test
# with the tests of a folder. One program is compiled and linked much faster than one for each file. NEEDS are targets
# that the tests run or load. In a build with sanitizers, files with its label are in LABEL_test instead.
#
# For ctest, a file X_test.cc of a program labelled cpu is one test, FOLDER.X, which runs its suites in one process: to
# start a process for each of two thousand cases takes longer than most of them. Each case is a test of its own,
# FOLDER.X.SUITE.CASE, in programs with another label and in the files named by EACH: these wait, and can wait side by
# side. TIMEOUT applies to a case, in seconds. ctest starts expensive tests first where it has not measured them.
function(muster_test folder label timeout)
  cmake_parse_arguments(ARG "SEPARATE" "" "SOURCES;EACH;DEPS;NEEDS" ${ARGN})
  if(MUSTER_SANITIZE MATCHES thread)
    math(EXPR timeout "10 * ${timeout}")
  endif()
  math(EXPR file_timeout "5 * ${timeout}")
  set(cost 0)
  if(label STREQUAL e2e)
    set(cost 5)
  endif()
  set(test_files ${ARG_SOURCES})
  list(FILTER test_files INCLUDE REGEX "_test\\.c[cu]$")
  set(shared_files ${ARG_SOURCES})
  list(FILTER shared_files EXCLUDE REGEX "_test\\.c[cu]$")
  if(NOT test_files)  # they are in a library, since several programs run them
    set(test_files ${folder}_test.cc)
  endif()
  set(programs "")
  set(own_files ${shared_files})
  set(sanitized_files "")
  set(taken "")
  foreach(file ${test_files})
    get_filename_component(name ${file} NAME)
    string(REGEX REPLACE "_test\\.c[cu]$" "" name ${name})
    if(NOT name STREQUAL folder)
      set(name ${folder}.${name})
    endif()
    set(labels ${label})
    foreach(other threads parsing)
      if(name IN_LIST MUSTER_${other}_TESTS OR "${folder}.*" IN_LIST MUSTER_${other}_TESTS)
        list(APPEND labels ${other})
      endif()
    endforeach()
    set(program ${folder}_test)
    if(NOT MUSTER_SANITIZED_LABEL STREQUAL "" AND MUSTER_SANITIZED_LABEL IN_LIST labels)
      set(program ${MUSTER_SANITIZED_LABEL}_test)
      list(APPEND sanitized_files ${file})
    elseif(file IN_LIST ARG_SOURCES)
      list(APPEND own_files ${file})
    endif()
    if(NOT TARGET ${program})
      muster_test_program(${program})
    endif()
    list(APPEND programs ${program})
    foreach(other ${labels})
      if(NOT other STREQUAL label)
        muster_label(${other} ${program})
      endif()
    endforeach()
    if(MUSTER_CUDA_TESTS)
      list(APPEND labels cuda)
      muster_label(cuda ${program})
    endif()
    set(filter *)
    if(file IN_LIST ARG_SOURCES)
      get_filename_component(path ${file} ABSOLUTE)
      muster_suites(filter taken ${path})
      if(filter STREQUAL "")
        continue()  # an earlier file has its suites, too
      endif()
    endif()
    set_property(GLOBAL APPEND PROPERTY MUSTER_TESTS ${name} "${folder}.*")
    if(label STREQUAL cpu AND NOT file IN_LIST ARG_EACH)
      add_test(NAME ${name} COMMAND ${program} --gtest_filter=${filter} ${timeout})
      set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${file_timeout})
      continue()
    endif()
    string(MAKE_C_IDENTIFIER ${name} list)
    gtest_discover_tests(${program} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_FILTER ${filter}
                         TEST_PREFIX ${name}. TEST_LIST ${list} NO_PRETTY_VALUES
                         PROPERTIES LABELS ${label} TIMEOUT ${timeout} COST ${cost})
    if(NOT labels STREQUAL label)
      # gtest_discover_tests passes on no property that is a list: set when ctest has found the cases, or
      # that the program is not built.
      set(labels_file ${CMAKE_CURRENT_BINARY_DIR}/${list}_labels.cmake)
      file(WRITE ${labels_file} "if(${list})
  set_tests_properties(\${${list}} PROPERTIES LABELS \"${labels}\")
else()
  set_tests_properties(${program}_NOT_BUILT PROPERTIES LABELS \"${labels}\")
endif()
")
      set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${labels_file})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES programs)
  foreach(program ${programs})
    target_link_libraries(${program} PRIVATE ${ARG_DEPS})
    if(ARG_NEEDS)
      add_dependencies(${program} ${ARG_NEEDS})
    endif()
    if(program STREQUAL "${folder}_test")
      target_sources(${program} PRIVATE ${own_files})
      list(LENGTH own_files files)
      if(files GREATER 1 AND NOT ARG_SEPARATE)
        muster_unity(${program})
      endif()
    else()
      muster_sanitized_test(${folder} ${sanitized_files} ${shared_files})
    endif()
  endforeach()
endfunction()
