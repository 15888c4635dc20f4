#include "launch/job/trace_place.h"

#include <filesystem>
#include <optional>

#include "common/base/error.h"
#include "launch/model/own_file.h"
#include "launch/trace/merge.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// The run, another one than that in `run_dir`, in whose directory the file would lie.
std::optional<std::string> OtherRun(const std::string& path, const std::string& run_dir) {
  std::error_code ignored;
  const fs::path folder = fs::weakly_canonical(fs::absolute(path).parent_path(), ignored);
  const bool own = fs::equivalent(folder, run_dir, ignored);
  if (own || !HoldsRun(folder)) return std::nullopt;
  return folder;
}

}  // namespace

void CheckTracePlace(const std::string& path, const std::string& run_dir) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ExitCode::kUsage, "the trace {}: {}; choose another file with --trace", path, why);
  };
  if (IsFileOfRunIn(run_dir, path)) refuse("is a file that the run itself writes");
  if (const auto run = RunOfFile(path)) refuse("is a file that the run in " + *run + " writes");
  if (const auto run = OtherRun(path, run_dir)) {
    refuse("lies in the directory of another run, " + *run);
  }
  std::error_code ignored;  // the write says what is wrong
  const bool something =
      fs::is_regular_file(fs::symlink_status(path, ignored)) && fs::file_size(path, ignored) > 0;
  if (something && !LooksLikeTrace(path)) {
    refuse("is there already, and is no trace, which alone would be replaced");
  }
}

}  // namespace muster
