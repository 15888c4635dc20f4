# The backend's sources, for the plugin (nvcc) and for the software GPU of the tests (g++).
set(MUSTER_CUDA_FOLDER ${CMAKE_CURRENT_LIST_DIR})
set(MUSTER_CUDA_KERNELS batch_norm.cu code.cu column_sums.cu depthwise.cu dropout.cu elementwise.cu group_norm.cu im2col.cu images.cu
    loss.cu lrn.cu pool.cu reflect_pad.cu rows.cu softmax.cu)
set(MUSTER_CUDA_SOURCES add_concat.cc await.cc batch_norm.cc card.cc check.cc conv2d.cc convolution_record.cc
    cuda_backend.cc dense.cc depthwise.cc dropout.cc gemm_convolution.cc gpu_adder.cc graph.cc group_norm.cc host_copies.cc images.cc losses.cc lt_product.cc
    normalise.cc pool.cc products.cc reflect_pad.cc watchdog.cc weight_copies.cc)
set(MUSTER_CUDNN_SOURCES cudnn.cc cudnn_convolution.cc)
list(TRANSFORM MUSTER_CUDA_KERNELS PREPEND ${MUSTER_CUDA_FOLDER}/)
list(TRANSFORM MUSTER_CUDA_SOURCES PREPEND ${MUSTER_CUDA_FOLDER}/)
list(TRANSFORM MUSTER_CUDNN_SOURCES PREPEND ${MUSTER_CUDA_FOLDER}/)
