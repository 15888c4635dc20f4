#include "cli/model/output_file.h"

#include <filesystem>

#include "common/base/error.h"

namespace muster {

void CheckOutputFile(const std::string& path, bool force) {
  namespace fs = std::filesystem;
  std::error_code ignored;  // the write says what is wrong
  if (path.empty() || path == "-" || fs::is_directory(path, ignored)) {
    throw Error(ExitCode::kUsage, "OUT is \"{}\": expected the name of a file", path);
  }
  if (force || !fs::exists(fs::symlink_status(path, ignored))) return;
  throw Error(ExitCode::kUsage,
              "{}: is there already: choose another name, or replace it with --force", path);
}

}  // namespace muster
