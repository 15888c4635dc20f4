// `muster export`: a run's weights in another format.
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
  std::string config_path;  // of the network, for ONNX, where the file does not say it; or ""
  std::vector<Setting> settings;
  std::string out;
  bool force = false;  // OUT may be replaced
};

// Writes OUT and returns what is to be said about it; numbers that are not finite are a warning on
// standard error. Throws Error: kUsage, kData, kFailure.
std::vector<std::string> ExportModel(const ExportArguments& arguments);

}  // namespace muster
