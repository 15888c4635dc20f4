// 16 floats per instruction (compiler flags: ps/CMakeLists.txt).
#define MUSTER_UPDATE_TABLE kAvx512UpdateKernels
#define MUSTER_UPDATE_NAME "AVX512"
#include "ps/update/update_kernels.inc"
