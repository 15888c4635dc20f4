// 8 floats per instruction (compiler flags: ps/CMakeLists.txt).
#define MUSTER_UPDATE_TABLE kAvx2UpdateKernels
#define MUSTER_UPDATE_NAME "AVX2"
#include "ps/update/update_kernels.inc"
