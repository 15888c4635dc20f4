# muster_cuda_architectures(RESULT VERSION): all cards that nvcc of this version makes code for, of those
# that the CUDA backend is written for, as CMAKE_CUDA_ARCHITECTURES has them; code for later ones at last.
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
