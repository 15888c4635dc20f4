#include "launch/model/output_place.h"

#include <filesystem>

#include "common/base/error.h"

namespace muster {

void CheckOutputPlace(const std::string& out, bool force) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (out.empty()) throw Error(ExitCode::kUsage, "OUT is \"\": expected the name of a file");
  if (out == "-") {
    throw Error(ExitCode::kUsage,
                "OUT is -: expected the name of a file; nothing is written to standard output");
  }
  if (fs::is_directory(out, ignored)) {
    throw Error(ExitCode::kUsage, "{}: is a folder, expected the name of a file, such as {}", out,
                (fs::path(out) / "weights.safetensors").string());
  }
  const fs::path folder = fs::path(out).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, ignored)) {
    const bool something = fs::exists(fs::symlink_status(folder, ignored));
    throw Error(ExitCode::kFailure, "{}: cannot be written: {} is {}", out, folder.string(),
                something ? "no folder" : "not there; make the folder first");
  }
  if (out.ends_with('/')) {
    throw Error(ExitCode::kUsage, "{}: ends as a folder's name, expected that of a file", out);
  }
  if (!force && fs::is_symlink(fs::symlink_status(out, ignored))) {
    throw Error(ExitCode::kUsage,
                "{}: is there already, a symbolic link to {}: choose another name, or replace the "
                "link, and not what it points to, with --force",
                out, fs::read_symlink(out, ignored).string());
  }
}

}  // namespace muster
