// Compiled for the baseline of the processor family (compiler flags: ps/CMakeLists.txt).
#define MUSTER_UPDATE_TABLE kScalarUpdateKernels
#define MUSTER_UPDATE_NAME "SCALAR"
#include "ps/update/update_kernels.inc"
