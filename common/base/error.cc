#include "common/base/error.h"

#include <cstdio>
#include <cstdlib>

namespace muster {

void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: broken invariant, please report: %s\n", file, line, condition);
  std::abort();
}

}  // namespace muster
