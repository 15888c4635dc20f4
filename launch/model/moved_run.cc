#include "launch/model/moved_run.h"

#include <fmt/core.h>

#include <filesystem>

#include "common/base/file_kind.h"
#include "launch/model/model_source.h"
#include "launch/runs/run_record.h"
#include "proto/config.pb.h"

namespace muster {

namespace fs = std::filesystem;

bool IsConfigOfRun(const std::string& config_path) {
  const fs::path path = fs::absolute(config_path);
  return path.filename() == "config.txtpb" && IsRunDir(path.parent_path());
}

std::string MovedDataHint(const config::Config& config, const std::string& run_dir) {
  const fs::path was = config.run().dir(), data = config.data().dir();
  std::error_code error;
  if (!was.is_absolute() || !data.is_absolute() || fs::exists(data, error)) return "";
  const fs::path now = fs::absolute(run_dir).lexically_normal();
  const fs::path candidate = (now / data.lexically_relative(was)).lexically_normal();
  if (candidate == data || !fs::exists(candidate, error)) return "";
  return fmt::format(" The run was in {} before; its data may be in {} now: --data {}",
                     was.string(), candidate.string(), ShellWord(candidate));
}

}  // namespace muster
