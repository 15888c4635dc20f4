// What a network's outputs say about classes. Everything is computed in double precision.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/graph/graph.h"

namespace muster {

// How outputs become probabilities: by a softmax, by a sigmoid of each, or unchanged.
enum class ProbabilitiesBy { kSoftmax, kSigmoid, kNothing };
ProbabilitiesBy ProbabilitiesOf(const Graph& graph);

// Returns one output per class of the inputs of the network's loss, as the next function takes
// them. A single output is the logit of class 1; that of class 0 is 0.
std::vector<float> OutputOfEachClass(const Graph& graph, std::span<const float> outputs);
std::vector<double> Probabilities(std::span<const float> outputs, ProbabilitiesBy by);

struct SureMistake {
  int64_t sample = 0, label = 0, predicted = 0;
  double probability = 0;  // of the predicted class
};
// Keeps the `most` mistakes with the highest probability, the highest first. Among equals, the
// lower sample comes first.
void KeepSurest(size_t most, std::vector<SureMistake>& mistakes);

}  // namespace muster
