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
  std::optional<Error> trouble;  // an error about a run's weights; `lines` still describe the run
};

// For a run directory: the state of the run, a list of its weights, and the chosen weights. For a
// checkpoint without a choice: all tensors, including those of the optimizer. Throws Error like
// OpenModel if there is nothing to show.
Inspected InspectSource(const std::string& from, const ModelChoice& choice, int width);

// The config in the model, as text. Throws Error; kUsage if there is none.
std::string ConfigTextIn(const std::string& from, const ModelChoice& choice);

// Describes each tensor with infinities or NaNs: "3 of conv1.weight".
std::vector<std::string> NonfiniteTensors(const SafetensorsReader& model);

}  // namespace muster
