# muster_cuda_architectures(RESULT VERSION): all GPU architectures that both this version of nvcc and the
# CUDA backend support, in the format of CMAKE_CUDA_ARCHITECTURES, followed by code for later ones.
function(muster_cuda_architectures result version)
  set(all 75-real 80-real 86-real 89-real 90-real)
  if(version VERSION_LESS 13)
    list(PREPEND all 61-real 70-real)
  endif()
  if(version VERSION_GREATER_EQUAL 12.8)
    list(APPEND all 100-real 120-real)
  endif()
  list(APPEND all 90-virtual)
  set(${result} ${all} PARENT_SCOPE)
endfunction()
