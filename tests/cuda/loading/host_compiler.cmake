# The C++ compiler for nvcc is the first that nvcc accepts. Usage: cmake -DFOLDER=... -P FILE
include(${CMAKE_CURRENT_LIST_DIR}/../../../cmake/CudaHostCompiler.cmake)

# A fake nvcc that accepts only compilers named *-13 and fails with CUDA's message for others.
file(MAKE_DIRECTORY ${FOLDER})
set(nvcc ${FOLDER}/nvcc)
file(WRITE ${nvcc} [=[#!/bin/sh
if [ "$1" = --version ]; then
  echo "nvcc: NVIDIA (R) Cuda compiler driver"
  echo "Cuda compilation tools, release 12.4, V12.4.131"
  exit 0
fi
host=
source=
while [ $# -gt 0 ]; do
  case $1 in
    -ccbin) host=$2; shift ;;
    *.cu) source=$1 ;;
  esac
  shift
done
[ -s "$source" ] || { echo "nvcc fatal   : no input" >&2; exit 1; }
case $host in
  *-13) exit 0 ;;
  *-14)
    echo "In file included from /usr/include/cuda_runtime.h:82," >&2
    echo "                 from <command-line>:" >&2
    echo "/usr/include/crt/host_config.h:143:2: error: #error -- unsupported GNU version; later than 13!" >&2
    echo "  143 | #error -- unsupported GNU version!" >&2 ;;
  *) echo "g++: not there" >&2 ;;
esac
exit 1
]=])
file(CHMOD ${nvcc} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)

function(expect what got expected)
  if(NOT got STREQUAL expected)
    message(FATAL_ERROR "${what}: expected \"${expected}\", got \"${got}\"")
  endif()
endfunction()

muster_nvcc_version(version ${nvcc})
expect("the version" "${version}" 12.4)
muster_nvcc_version(version /bin/true)
expect("the version of what is no nvcc" "${version}" "")
muster_nvcc_version(version ${FOLDER}/not_there)
expect("the version of what is not there" "${version}" "")

set(of_14 "/usr/include/crt/host_config.h:143:2: error: #error -- unsupported GNU version, later than 13!")
function(choose expected expected_reasons)
  muster_cuda_host_compiler(chosen reasons ${nvcc} "" ${FOLDER} ${ARGN})
  expect("of ${ARGN}" "${chosen}" "${expected}")
  expect("of ${ARGN}, why not the others" "${reasons}" "${expected_reasons}")
endfunction()
choose(g++-13 "" g++-13 g++-14)
choose(/usr/bin/g++-13 "\n  with g++-14: ${of_14}" g++-14 /usr/bin/g++-13 g++-12)
choose("" "\n  with g++-14: ${of_14}\n  with g++-12: g++: not there" g++-14 g++-12)
