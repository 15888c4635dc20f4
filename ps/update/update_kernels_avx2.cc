// 8 floats at a time (compiler flags: ps/CMakeLists.txt).
#define MUSTER_UPDATE_TABLE kAvx2UpdateKernels
#define MUSTER_UPDATE_NAME "AVX2"
#include "ps/update/update_kernels.inc"
