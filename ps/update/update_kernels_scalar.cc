// For what every processor of the family has (compiler flags: ps/CMakeLists.txt).
#define MUSTER_UPDATE_TABLE kScalarUpdateKernels
#define MUSTER_UPDATE_NAME "SCALAR"
#include "ps/update/update_kernels.inc"
