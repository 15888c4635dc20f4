#include "cli/job/job_config.h"

#include "common/base/error.h"
#include "common/config/config.h"

namespace muster {

JobConfig::JobConfig(const config::Config& config, const RunDir& dir, bool resumed)
    : path_(dir.ConfigPath()) {
  try {
    WriteConfig(config, path_);
  } catch (const Error& error) {
    if (!resumed) {
      throw Error(ExitCode::kUsage, "{}; if it is the place, choose another with --run-dir",
                  error.what());
    }
    warning_ = fmt::format("{}; the run goes on, and this file is as it was", error.what());
    held_ = HeldFile::OfText(ConfigText(config));
    path_ = held_->path();
  }
}

}  // namespace muster
