# The flags of all targets.
add_library(muster_flags INTERFACE)
target_include_directories(muster_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(muster_flags INTERFACE -Wall -Wextra -Wpedantic -Wno-missing-field-initializers
                       # GCC 12 reports false overflows and overlaps in inlined fmt and std::string.
                       -Wno-stringop-overflow -Wno-restrict)
if(MUSTER_ARCH)
  target_compile_options(muster_flags INTERFACE -march=${MUSTER_ARCH})
endif()
if(MUSTER_SANITIZE)
  add_compile_options(-fsanitize=${MUSTER_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${MUSTER_SANITIZE})
endif()

# Code that only reads settings, prints or tests is compiled with -O1, which is faster to compile
# and fast enough. Arithmetic and everything on a step's path stay at -O3, because the bits of a
# multiply and an add depend on it.
set(MUSTER_COLD $<$<CONFIG:Release>:-O1>)

# muster_library(NAME [SEPARATE] SOURCES ... [DEPS ...]): a static library of one folder. SEPARATE:
# no unity build, so that the bits of its arithmetic do not depend on other files.
function(muster_library name)
  cmake_parse_arguments(ARG "SEPARATE" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  if(MUSTER_UNITY AND NOT ARG_SEPARATE)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
  target_link_libraries(${name} PUBLIC muster_flags ${ARG_DEPS})
endfunction()

# muster_program(NAME SOURCES ... [DEPS ...]): an installed program.
function(muster_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE muster_flags muster_processor ${ARG_DEPS})
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

# muster_sanitized(LABEL TARGETS ...): adds targets to tests_LABEL, so that a sanitizer build can
# build only the tests with this label.
function(muster_sanitized label)
  if(NOT TARGET tests_${label})
    add_custom_target(tests_${label})
  endif()
  add_dependencies(tests_${label} ${ARGN})
endfunction()

# muster_test(NAME LABEL TIMEOUT [EACH] [SEPARATE] SOURCES ... [DEPS ...]): one GoogleTest program.
# LABEL is cpu, gpu or e2e. The program also gets the labels threads, parsing, cuda and emulated if
# tests/CMakeLists.txt lists it under them. TIMEOUT is in seconds per case, ten times as long under
# ThreadSanitizer. SEPARATE: compile its files one by one.
#
# A program with the label cpu is one ctest test that runs all its cases, because starting a process
# for each of two thousand short cases would take longer than the cases. With EACH, and with every
# other label, each case is a test, NAME.SUITE.CASE, so that cases that wait can run in parallel.
# COST makes ctest start slow tests first if it has no measurements, so that none of them runs alone
# at the end.
function(muster_test name label timeout)
  cmake_parse_arguments(ARG "EACH;SEPARATE" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  list(LENGTH ARG_SOURCES files)
  if(MUSTER_UNITY AND files GREATER 1 AND NOT ARG_SEPARATE)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
  target_link_libraries(${name} PRIVATE muster_flags ${ARG_DEPS} GTest::gtest GTest::gmock test_main)
  target_compile_options(${name} PRIVATE ${MUSTER_COLD})
  if(MUSTER_COLD)
    target_precompile_headers(${name} REUSE_FROM gtest_headers)
  endif()
  if(MUSTER_SANITIZE MATCHES thread)
    math(EXPR timeout "10 * ${timeout}")
  endif()
  set(labels ${label})
  foreach(sanitized threads parsing cuda emulated)
    if(name IN_LIST MUSTER_${sanitized}_TESTS)
      list(APPEND labels ${sanitized})
      muster_sanitized(${sanitized} ${name})
    endif()
  endforeach()
  if(label STREQUAL cpu AND NOT ARG_EACH)
    add_test(NAME ${name} COMMAND ${name} ${timeout})
    math(EXPR timeout "5 * ${timeout}")
    set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${timeout})
    return()
  endif()
  set(cost 0)
  if(label STREQUAL e2e)
    set(cost 5)
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_PREFIX ${name}. NO_PRETTY_VALUES
                       PROPERTIES LABELS ${label} TIMEOUT ${timeout} COST ${cost})
  if(NOT labels STREQUAL label)
    # gtest_discover_tests cannot pass list properties, so set them where ctest has found the cases.
    set(file ${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake)
    file(WRITE ${file} "if(${name}_TESTS)
  set_tests_properties(\${${name}_TESTS} PROPERTIES LABELS \"${labels}\")
endif()
")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${file})
  endif()
endfunction()
