#include "cli/job/trace_place.h"

#include <filesystem>

#include "cli/trace/merge.h"
#include "common/base/error.h"

namespace muster {

void CheckTracePlace(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;  // the write says what is wrong
  const bool something =
      fs::is_regular_file(fs::symlink_status(path, ignored)) && fs::file_size(path, ignored) > 0;
  if (!something || LooksLikeTrace(path)) return;
  throw Error(ExitCode::kUsage,
              "the trace {}: is there already, and is no trace, which alone would be replaced; "
              "choose another file with --trace",
              path);
}

}  // namespace muster
