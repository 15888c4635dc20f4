// `muster export`: writes the weights of a run in another format.
#pragma once

#include <string>
#include <vector>

#include "cli/model/model_source.h"
#include "common/config/config.h"

namespace muster {

struct ExportArguments {
  std::string from;    // a run directory, a checkpoint or a file
  std::string format;  // safetensors, npz, onnx
  ModelChoice choice;
  std::string config_path;  // the network's config, for ONNX, if the file has none; or ""
  std::vector<Setting> settings;
  std::string out;
  bool force = false;  // may overwrite OUT
};

// Writes OUT and returns lines to print. Warns of non-finite numbers on standard error. Throws
// Error: kUsage, kData, kFailure.
std::vector<std::string> ExportModel(const ExportArguments& arguments);

}  // namespace muster
