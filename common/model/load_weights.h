// Takes the variables of a network from a safetensors file in PyTorch's names and layouts, and says
// whether a file of weights is as it was written.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "common/tensors/safetensors_reader.h"

namespace muster {

// What a file's tensors are called here. A name stands for itself and for all that begin with it
// and a '.': "features.0" for "features.0.weight". The longest one that fits counts. An empty
// value: the tensor is left out.
using TensorNames = std::map<std::string, std::string>;

struct LoadOptions {
  TensorNames names;
  // Leave what is missing, of another shape, or too much, as it is, instead of refusing the file.
  bool skip_mismatched = false;
};

// Which variables of a network are in a file.
struct WeightsMatch {
  std::vector<int> variables;        // indices into Graph::variables()
  std::vector<std::string> skipped;  // a line for each other one; with skip_mismatched
};

// num_batches_tracked is not used, and may be missing. Throws Error(kData) that names the file and
// every variable that is missing, of another shape or type, or that the network has no place for;
// and where nothing fits.
WeightsMatch MatchWeights(const SafetensorsReader& file, const Graph& graph,
                          const LoadOptions& options);
// The same, and fills in those variables of `weights`, an arena of the graph's layout.
WeightsMatch LoadWeights(const SafetensorsReader& file, const Graph& graph,
                         const LoadOptions& options, std::span<float> weights);

// Throws Error(kData) that names the variables of these with numbers that are not finite, in
// PyTorch's names, and how many those are; and what to do, if `advice` says it ("; …").
void RequireFinite(const std::string& file, const Graph& graph, const WeightsMatch& match,
                   std::span<const float> weights, const char* advice = "");

// Reads all of it and compares what its metadata say of it: contents_hash, or, in a file that has
// none, the weights_hash of a run. A file of another program has neither, and passes. Throws
// Error(kData) that names the file, what was expected and what is there.
void RequireWhole(const SafetensorsReader& file);

// What is wrong with the file at `path`; "" if it is whole.
std::string DamageOf(const std::string& path);

}  // namespace muster
