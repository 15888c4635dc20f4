// Loads the variables of a network from a safetensors file with PyTorch's names and layouts, and
// checks the integrity of weight files.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "common/tensors/safetensors_reader.h"

namespace muster {

// Maps the names of a file's tensors to ours. A key matches a name that is equal to it or begins
// with it and a '.': "features.0" matches "features.0.weight". The longest match wins. Mapping to
// "" skips the tensor.
using TensorNames = std::map<std::string, std::string>;

struct LoadOptions {
  std::string prefix;  // removed from the names that begin with it, before they are mapped
  TensorNames names;
  // Ignore missing, misshapen or extra tensors instead of refusing the file.
  bool skip_mismatched = false;
};

// The variables of a network that are in a file.
struct WeightsMatch {
  std::vector<int> variables;        // indices into Graph::variables()
  std::vector<std::string> skipped;  // a line for each mismatch; with skip_mismatched
};

// Ignores num_batches_tracked, which may be missing. Throws Error(kData) that lists every variable
// that is missing, unknown, or of another shape or type. Also throws if no variable matches.
WeightsMatch MatchWeights(const SafetensorsReader& file, const Graph& graph,
                          const LoadOptions& options);
// The same, but also copies the variables to `weights`, a buffer with the graph's layout.
WeightsMatch LoadWeights(const SafetensorsReader& file, const Graph& graph,
                         const LoadOptions& options, std::span<float> weights);

// Throws Error(kData) if any of these variables has non-finite numbers. The message lists their
// PyTorch names and counts, followed by `advice` ("; …").
void RequireFinite(const std::string& file, const Graph& graph, const WeightsMatch& match,
                   std::span<const float> weights, const char* advice = "");

// Reads the whole file and compares it with its metadata: contents_hash or, if that is missing, a
// run's weights_hash. A file from another program has neither and passes. Throws Error(kData) with
// the file, the expected hash, the actual hash, and what to do.
void RequireWhole(const SafetensorsReader& file);

// Describes the damage to the file at `path`, without advice; "" if it is intact.
std::string DamageOf(const std::string& path);

}  // namespace muster
