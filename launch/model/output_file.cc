#include "launch/model/output_file.h"

#include <filesystem>

#include "common/base/error.h"

namespace muster {

void CheckOutputFile(const std::string& path, bool force) {
  std::error_code ignored;  // the write says what is wrong
  if (force || !std::filesystem::is_regular_file(path, ignored)) return;
  throw Error(ExitCode::kUsage,
              "{}: is there already: choose another name, or replace it with --force", path);
}

}  // namespace muster
