# The GPU architectures that MUSTER_CUDA_ARCHITECTURES=all selects for each nvcc version. Only one
# version is installed, so this tests the selection alone. Usage: cmake -P FILE
include(${CMAKE_CURRENT_LIST_DIR}/../../../cmake/CudaArchitectures.cmake)
function(expect version)
  muster_cuda_architectures(got ${version})
  if(NOT got STREQUAL ARGN)
    message(FATAL_ERROR "nvcc ${version}: expected ${ARGN}, got ${got}")
  endif()
endfunction()
expect(12.0.140 61-real 70-real 75-real 80-real 86-real 89-real 90-real 90-virtual)
expect(12.7 61-real 70-real 75-real 80-real 86-real 89-real 90-real 90-virtual)
expect(12.8.93 61-real 70-real 75-real 80-real 86-real 89-real 90-real 100-real 120-real 90-virtual)
expect(13.0.88 75-real 80-real 86-real 89-real 90-real 100-real 120-real 90-virtual)
