#include "cli/evaluate/prediction.h"

#include <algorithm>
#include <cmath>
#include <numeric>

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

Prediction PredictionOf(int64_t sample, int64_t label, std::span<const float> outputs,
                        bool are_probabilities, size_t top) {
  const std::vector<double> shares =
      are_probabilities ? std::vector<double>(outputs.begin(), outputs.end()) : Softmax(outputs);
  std::vector<size_t> order(outputs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // By the outputs: what differs there may be the same in a softmax.
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return outputs[a] > outputs[b]; });
  Prediction prediction{.sample = sample, .label = label};
  const auto as_large = std::ranges::count_if(
      outputs, [&](float x) { return x >= outputs[static_cast<size_t>(label)]; });
  prediction.right = as_large == 1;  // itself
  order.resize(std::min(top, order.size()));
  for (const size_t number : order) {
    prediction.top.push_back({static_cast<int64_t>(number), shares[number]});
  }
  return prediction;
}

}  // namespace muster
