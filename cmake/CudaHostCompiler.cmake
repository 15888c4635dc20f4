# nvcc compiles host code with a C++ compiler, and refuses one that is too new. Debian 13 has g++ 14 and
# CUDA 12.4, which supports up to g++ 13. CMake itself would stop at the first failure.

# muster_nvcc_version(RESULT NVCC): "12.4", or empty if NVCC is not nvcc.
function(muster_nvcc_version result nvcc)
  execute_process(COMMAND ${nvcc} --version OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE code)
  set(version "")
  if(code EQUAL 0 AND said MATCHES "release ([0-9]+\\.[0-9]+)")
    set(version ${CMAKE_MATCH_1})
  endif()
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

# muster_nvcc_compiles(ERROR NVCC HOST FLAGS FOLDER): tries whether nvcc works with this host compiler and
# its standard library, in FOLDER. ERROR is the reason if not, or empty.
function(muster_nvcc_compiles error nvcc host flags folder)
  set(source ${folder}/host_compiler.cu)
  file(WRITE ${source} "#include <algorithm>
#include <cmath>
#include <cuda_bf16.h>
__global__ void Kernel(float* x) { *x = std::max(std::exp(*x), 1.0f); }
void Launch(float* x) { Kernel<<<1, 1>>>(x); }
")
  separate_arguments(flags UNIX_COMMAND "${flags}")
  execute_process(COMMAND ${nvcc} ${flags} -ccbin ${host} -std=c++20 --expt-relaxed-constexpr -c ${source}
                          -o ${source}.o
                  OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE code)
  set(message "")
  if(NOT code EQUAL 0)
    # The first line that names an error, or the first line if there is none.
    string(REPLACE ";" "," said "${said}")
    string(REGEX MATCHALL "[^\n]+" lines "${said}")
    set(message "exit code ${code}")
    list(FILTER lines EXCLUDE REGEX "^In file included from|^ +from ")
    if(lines)
      list(GET lines 0 message)
    endif()
    list(FILTER lines INCLUDE REGEX "error|fatal|cannot")
    if(lines)
      list(GET lines 0 message)
    endif()
    string(STRIP "${message}" message)
  endif()
  set(${error} "${message}" PARENT_SCOPE)
endfunction()

# muster_cuda_host_compiler(RESULT REASONS NVCC FLAGS FOLDER COMPILERS ...): the first compiler that nvcc
# accepts, or empty. REASONS has a line for each compiler that it did not accept.
function(muster_cuda_host_compiler result reasons nvcc flags folder)
  set(chosen "")
  set(lines "")
  foreach(compiler ${ARGN})
    muster_nvcc_compiles(error ${nvcc} ${compiler} "${flags}" ${folder})
    if(NOT error)
      set(chosen ${compiler})
      break()
    endif()
    string(APPEND lines "\n  with ${compiler}: ${error}")
  endforeach()
  set(${result} "${chosen}" PARENT_SCOPE)
  set(${reasons} "${lines}" PARENT_SCOPE)
endfunction()
