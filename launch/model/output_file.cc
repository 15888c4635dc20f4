#include "launch/model/output_file.h"

#include <filesystem>

#include "common/base/error.h"
#include "launch/model/own_file.h"

namespace muster {

void RefuseFileOfRun(const std::string& path, const std::string& from) {
  const auto run = RunOfFile(path, {from});
  if (!run) return;
  throw Error(ExitCode::kUsage,
              "{}: is a file that the run in {} writes, and nothing else may replace, also with "
              "--force: choose another name",
              path, *run);
}

void CheckOutputFile(const std::string& path, bool force, const std::string& from) {
  RefuseFileOfRun(path, from);
  std::error_code ignored;  // the write says what is wrong
  if (force || !std::filesystem::is_regular_file(path, ignored)) return;
  throw Error(ExitCode::kUsage,
              "{}: is there already: choose another name, or replace it with --force", path);
}

}  // namespace muster
