// `muster import`: weights of another program, in the names of a config's network.
#pragma once

#include <string>
#include <vector>

#include "common/config/config.h"
#include "common/model/load_weights.h"

namespace muster {

// What another program's variables are called here (--map). Reads a file of lines "THEIRS OURS"
// ("THEIRS -": leave it out); '#' begins a comment. Throws Error(kUsage) that names file and line.
TensorNames ReadTensorNames(const std::string& path);

struct ImportArguments {
  std::string file, config_path;
  std::vector<Setting> settings;
  std::string names;  // a file (ReadTensorNames), or ""
  bool skip_mismatched = false;
  std::string out;
  bool force = false;  // OUT may be replaced
};

// Writes OUT, for run.initial_weights, and returns what is to be said about it. Variables that are
// skipped are not in it. Throws Error: kUsage, kData, kFailure.
std::vector<std::string> ImportModel(const ImportArguments& arguments);

}  // namespace muster
