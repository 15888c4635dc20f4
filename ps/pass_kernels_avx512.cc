// 16 floats at a time (compiler flags: ps/CMakeLists.txt).
#define MUSTER_PASS_TABLE kAvx512PassKernels
#define MUSTER_PASS_NAME "AVX512"
#include "ps/pass_kernels.inc"
