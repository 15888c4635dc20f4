// For what every processor of the family has (compiler flags: ps/CMakeLists.txt).
#define MUSTER_PASS_TABLE kScalarPassKernels
#define MUSTER_PASS_NAME "SCALAR"
#include "ps/pass_kernels.inc"
