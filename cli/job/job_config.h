// The resolved config, as a file that all processes of a job read.
#pragma once

#include <optional>
#include <string>

#include "cli/job/run_dir.h"
#include "cli/process/held_file.h"
#include "proto/config.pb.h"

namespace muster {

// config.txtpb of the run directory; for a run that goes on where there is no room for what has
// changed, a file in memory, which lives as long as this.
class JobConfig {
 public:
  // Throws Error(kUsage) where it cannot be written, and the run is new.
  JobConfig(const config::Config& config, const RunDir& dir, bool resumed);

  const std::string& path() const { return path_; }
  const std::string& warning() const { return warning_; }  // "": it is in its directory

 private:
  std::string path_, warning_;
  std::optional<HeldFile> held_;
};

}  // namespace muster
