#include "common/graph/probabilities.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <variant>

namespace muster {
namespace {

std::vector<double> Softmax(std::span<const float> logits) {
  const double largest = *std::ranges::max_element(logits);
  std::vector<double> shares;
  double sum = 0;
  for (const float logit : logits) sum += shares.emplace_back(std::exp(logit - largest));
  for (double& share : shares) share /= sum;
  return shares;
}

}  // namespace

ProbabilitiesBy ProbabilitiesOf(const Graph& graph) {
  const Layer& loss = graph.layers().back();
  const int read = loss.inputs.front();
  // OutputOfEachClass makes two outputs of a single one, and their softmax is its sigmoid.
  if (std::holds_alternative<SigmoidCrossEntropySpec>(loss.spec) && graph.outputs() > 1) {
    return ProbabilitiesBy::kSigmoid;
  }
  // If a network ends in a softmax and is trained with a squared error, its outputs are already
  // probabilities.
  const bool has_softmax = read >= 0 && std::holds_alternative<SoftmaxSpec>(
                                            graph.layers()[static_cast<size_t>(read)].spec);
  return has_softmax && std::holds_alternative<MeanSquaredErrorSpec>(loss.spec)
             ? ProbabilitiesBy::kNothing
             : ProbabilitiesBy::kSoftmax;
}

std::vector<float> OutputOfEachClass(const Graph& graph, std::span<const float> outputs) {
  std::vector<float> all(outputs.begin(), outputs.end());
  if (graph.layers().back().first_class() == 1) all.insert(all.begin(), 0.0f);
  return all;
}

std::vector<double> Probabilities(std::span<const float> outputs, ProbabilitiesBy by) {
  if (by == ProbabilitiesBy::kSoftmax) return Softmax(outputs);
  std::vector<double> probabilities(outputs.begin(), outputs.end());
  if (by == ProbabilitiesBy::kNothing) return probabilities;
  for (double& x : probabilities) x = 1 / (1 + std::exp(-x));
  return probabilities;
}

void KeepSurest(size_t most, std::vector<SureMistake>& mistakes) {
  std::ranges::sort(mistakes, {}, [](const SureMistake& one) {
    return std::tuple(-one.probability, one.sample);
  });
  mistakes.resize(std::min(most, mistakes.size()));
}

}  // namespace muster
