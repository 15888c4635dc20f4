# The sources of gpu_bench, used for real GPUs and for the tests' software GPU.
set(MUSTER_GPU_BENCH_SOURCES bench_device.cc bench_kernels.cc convolution_cases.cc elementwise_cases.cc gpu_bench.cc
    image_cases.cc launch_costs.cc norm_cases.cc pool_cases.cc row_cases.cc)
if(MUSTER_CUDNN_INCLUDE_DIR)
  list(APPEND MUSTER_GPU_BENCH_SOURCES cudnn_device.cc cudnn_table.cc)
else()
  list(APPEND MUSTER_GPU_BENCH_SOURCES no_cudnn_table.cc)
endif()
list(TRANSFORM MUSTER_GPU_BENCH_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
