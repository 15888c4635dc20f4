// Which file of weights a command is about.
#pragma once

#include <optional>
#include <string>

#include "common/graph/graph.h"
#include "common/tensors/safetensors_reader.h"
#include "proto/config.pb.h"

namespace muster {

struct ModelChoice {
  bool average = false;  // --ema
  bool best = false;     // --best
};

// `from`: a file, or a run directory, of which the choice tells the file; without one it is
// model.safetensors. Throws Error: kUsage for a choice that does not fit, kData if it cannot be
// read.
SafetensorsReader OpenModel(const std::string& from, const ModelChoice& choice);

// Whether `path` is a run directory or a file of weights, and not a config.
bool IsModel(const std::string& path);

}  // namespace muster
