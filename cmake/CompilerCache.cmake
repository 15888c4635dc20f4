# Makes use of ccache and mold where they are installed. Builds do not need them.
option(MUSTER_COMPILER_CACHE "Compile through ccache, and link with mold, where they are installed" ON)

# The same object files in every clone: paths in __FILE__ and in debug information are relative.
add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>)
if(NOT MUSTER_COMPILER_CACHE)
  return()
endif()
find_program(MUSTER_CCACHE ccache)
if(MUSTER_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Part of the launcher, so that each build, with whatever environment, asks for the same entries.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${MUSTER_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()
include(CheckLinkerFlag)
check_linker_flag(CXX -fuse-ld=mold MUSTER_MOLD)
if(MUSTER_MOLD)
  add_link_options($<$<LINK_LANGUAGE:C,CXX>:-fuse-ld=mold>)
endif()
