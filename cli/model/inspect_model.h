// `muster inspect` of a run directory, a checkpoint, or a file of weights.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/model/model_source.h"
#include "common/base/error.h"
#include "common/tensors/safetensors_reader.h"

namespace muster {

struct Inspected {
  std::vector<std::string> lines;
  std::optional<Error> trouble;  // with the weights of a run, of which the lines tell all the same
};

// For a run directory, it shows the state of the run, which weights it holds, and the chosen ones.
// For a checkpoint without a choice, it shows all tensors, also the optimizer's. Throws Error as
// OpenModel does if there is nothing to show.
Inspected InspectSource(const std::string& from, const ModelChoice& choice);

// The config of it, as text. Throws Error, kUsage where there is none.
std::string ConfigTextIn(const std::string& from, const ModelChoice& choice);

// "3 of conv1.weight": of each tensor with numbers that are infinite or none.
std::vector<std::string> NonfiniteTensors(const SafetensorsReader& model);

}  // namespace muster
