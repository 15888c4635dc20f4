// One value at a time, of the baseline instruction set: what the others are compared with (compiler
// flags: ps/CMakeLists.txt).
#define MUSTER_PASS_TABLE kScalarPassKernels
#define MUSTER_PASS_NAME "SCALAR"
#include "ps/pass_kernels.inc"
