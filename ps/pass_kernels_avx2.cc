// 8 floats at a time (compiler flags: ps/CMakeLists.txt).
#define MUSTER_PASS_TABLE kAvx2PassKernels
#define MUSTER_PASS_NAME "AVX2"
#include "ps/pass_kernels.inc"
