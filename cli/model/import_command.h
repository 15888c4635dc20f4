// `muster import`: converts weights of another program to the names of a config's network.
#pragma once

#include <string>
#include <vector>

#include "common/config/config.h"
#include "common/model/load_weights.h"

namespace muster {

// Reads a map from another program's variable names to Muster's (--map): lines "THEIRS OURS", or
// "THEIRS -" to leave a variable out; '#' starts a comment. Throws Error(kUsage) with file and
// line.
TensorNames ReadTensorNames(const std::string& path);

struct ImportArguments {
  std::string file, config_path;
  std::vector<Setting> settings;
  std::string names;  // a file (ReadTensorNames), or ""
  std::string prefix = {};
  bool skip_mismatched = false;
  std::string out;
  bool force = false;  // may overwrite OUT
};

// Writes OUT, for run.initial_weights, without skipped variables. Returns lines to print. Throws
// Error: kUsage, kData, kFailure.
std::vector<std::string> ImportModel(const ImportArguments& arguments);

}  // namespace muster
