#include "common/base/version.h"

namespace muster {

const char* const kVersion = MUSTER_VERSION;

}  // namespace muster
