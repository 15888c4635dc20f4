# Finds the CUDA toolkit and sets MUSTER_CUDA_FOUND. The toolkit is needed to build the plugin
# libmuster_cuda.so and the tests on the software GPU, but not for the programs.
set(MUSTER_CUDA AUTO CACHE STRING "Build the CUDA backend: AUTO (if the toolkit is found), ON or OFF")
set_property(CACHE MUSTER_CUDA PROPERTY STRINGS AUTO ON OFF)
set(MUSTER_CUDA_FOUND FALSE)
# Sanitizers do not support nvcc. The software GPU runs under them instead.
if(MUSTER_CUDA STREQUAL OFF OR (MUSTER_CUDA STREQUAL AUTO AND MUSTER_SANITIZE))
  return()
endif()
# Reports why the backend is not built. This is an error with MUSTER_CUDA=ON.
macro(muster_without_cuda level)
  if(MUSTER_CUDA STREQUAL ON)
    message(FATAL_ERROR "MUSTER_CUDA=ON: " ${ARGN})
  endif()
  message(${level} ${ARGN} "\nWithout the CUDA backend.")
  return()
endmacro()
if(NOT CMAKE_CUDA_COMPILER)
  find_program(MUSTER_NVCC NAMES $ENV{CUDACXX} nvcc PATHS /usr/local/cuda/bin)
  if(NOT MUSTER_NVCC)
    muster_without_cuda(STATUS "nvcc not found: expected it in PATH, in /usr/local/cuda/bin, or in "
                               "CMAKE_CUDA_COMPILER")
  endif()
  set(CMAKE_CUDA_COMPILER ${MUSTER_NVCC})
endif()
include(CudaHostCompiler)
muster_nvcc_version(nvcc_version ${CMAKE_CUDA_COMPILER})
if(nvcc_version VERSION_LESS 12)  # or empty
  muster_without_cuda(WARNING "${CMAKE_CUDA_COMPILER}: expected nvcc of CUDA 12 or later, got \"${nvcc_version}\". Set "
                              "CMAKE_CUDA_COMPILER to another one.")
endif()
# Prefer the compiler of the other sources. If nvcc does not accept it, use the newest that it accepts.
set(named "${CMAKE_CUDA_HOST_COMPILER}")
if(NOT named)
  set(named $ENV{CUDAHOSTCXX})
endif()
set(candidates ${named})
if(NOT named)
  set(candidates ${CMAKE_CXX_COMPILER})
  foreach(version RANGE 16 10 -1)
    find_program(found g++-${version} NO_CACHE)
    if(found)
      list(APPEND candidates ${found})
    endif()
    unset(found)
  endforeach()
endif()
set(tried "${CMAKE_CUDA_COMPILER} ${nvcc_version} ${CMAKE_CUDA_FLAGS} ${candidates}")
if(NOT MUSTER_CUDA_TRIED STREQUAL tried)
  set(folder ${CMAKE_BINARY_DIR}/CMakeFiles/host_compiler)
  muster_cuda_host_compiler(chosen reasons ${CMAKE_CUDA_COMPILER} "${CMAKE_CUDA_FLAGS} $ENV{CUDAFLAGS}" ${folder}
                            ${candidates})
  if(NOT chosen)
    muster_without_cuda(WARNING "nvcc of CUDA ${nvcc_version} (${CMAKE_CUDA_COMPILER}) accepts none of these C++ compilers:"
                                "${reasons}\nInstall an older one (on Debian and Ubuntu a package such as g++-13), or set "
                                "CMAKE_CUDA_HOST_COMPILER.")
  endif()
  set(MUSTER_CUDA_TRIED "${tried}" CACHE INTERNAL "")
  set(MUSTER_CUDA_HOST_COMPILER ${chosen} CACHE INTERNAL "")
endif()
set(CMAKE_CUDA_HOST_COMPILER ${MUSTER_CUDA_HOST_COMPILER})
if(CMAKE_CXX_COMPILER_LAUNCHER AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90-real)  # for CMake's checks; the plugin has its own list
endif()
enable_language(CUDA)
# CMake 3.25 does not know these options of nvcc yet.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
# CMake 3.25.1 (Debian 12) fails where a toolkit has no nvToolsExt, as all since CUDA 12.9.
if(NOT TARGET CUDA::nvToolsExt)
  add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
endif()
find_package(CUDAToolkit 12 QUIET)
if(NOT CUDAToolkit_FOUND OR NOT TARGET CUDA::cublasLt)
  muster_without_cuda(WARNING "${CMAKE_CUDA_COMPILER}: expected a CUDA toolkit of version 12 or later with cuBLAS beside it")
endif()
find_path(MUSTER_CUDNN_INCLUDE_DIR cudnn_v9.h cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS}
          DOC "Folder of cuDNN 9's headers; without them convolutions go through cuBLAS")
# Machine code for these GPUs (sm_80 also runs on 86 and 89), and code that the driver compiles for
# later ones on first use. "all" takes twice as long to build.
set(MUSTER_CUDA_ARCHITECTURES 75-real 80-real 90-real 90-virtual CACHE STRING
    "GPU architectures of the CUDA backend, as in CMAKE_CUDA_ARCHITECTURES, or all")
if(MUSTER_CUDA_ARCHITECTURES STREQUAL all)
  include(CudaArchitectures)
  muster_cuda_architectures(MUSTER_CUDA_ARCHITECTURES ${CMAKE_CUDA_COMPILER_VERSION})
endif()
set(MUSTER_CUDA_CODE "${MUSTER_CUDA_ARCHITECTURES}" CACHE INTERNAL "")  # for scripts/package_cuda.sh
get_filename_component(MUSTER_CUDA_LIBRARY_FOLDERS ${CUDAToolkit_LIBRARY_DIR} REALPATH)
set(MUSTER_CUDA_FOUND TRUE)
set(cudnn "cuDNN's headers in ${MUSTER_CUDNN_INCLUDE_DIR}")
if(NOT MUSTER_CUDNN_INCLUDE_DIR)
  set(cudnn "without cuDNN, because cudnn.h was not found (MUSTER_CUDNN_INCLUDE_DIR)")
endif()
message(STATUS "CUDA backend: toolkit ${CUDAToolkit_VERSION} with ${CMAKE_CUDA_HOST_COMPILER}, "
               "for ${MUSTER_CUDA_ARCHITECTURES}, ${cudnn}")
