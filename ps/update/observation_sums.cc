#include "ps/update/observation_sums.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "common/base/error.h"

namespace muster {
namespace {

double Squares(const UpdateKernelTable& kernels, const float* values, size_t count) {
  std::array<double, ChunkObserver::kMostFloats / kLineFloats> lines;
  kernels.line_squares(values, lines.data(), count);
  return std::accumulate(lines.begin(), lines.begin() + static_cast<ptrdiff_t>(count / kLineFloats),
                         0.0);
}

}  // namespace

void ChunkObserver::See(const UpdateKernelTable& kernels, size_t at, size_t count,
                        const float* left, const float* right, const float* next_weights) {
  MUSTER_CHECK(count <= kMostFloats);
  alignas(64) float sum[kMostFloats];
  if (right != nullptr) {
    kernels.add(left, right, sum, count);
    left = sum;
  }
  gradient_squares_ += Squares(kernels, left, count);
  weight_squares_ += Squares(kernels, next_weights, count);
  if (histograms_) Count(at, {left, count}, {next_weights, count});
}

// A block may contain several variables, with padding between them.
void ChunkObserver::Count(size_t at, std::span<const float> gradient,
                          std::span<const float> weights) {
  const std::vector<Variable>& variables = layout_->variables();
  const size_t end = at + gradient.size();
  for (auto v = static_cast<size_t>(&layout_->VariableAt(at) - variables.data());
       v < variables.size() && variables[v].offset < end; ++v) {
    const size_t first = std::max(at, variables[v].offset);
    const size_t last = std::min(end, variables[v].offset + variables[v].count);
    if (first >= last) continue;
    Histograms& histograms = variables_[v];
    histograms.gradient.Add(gradient.subspan(first - at, last - first));
    histograms.weights.Add(weights.subspan(first - at, last - first));
  }
}

// Adds in the order of the chunks, so that the result does not depend on threads.
Observation SumUp(std::span<const ChunkObserver> chunks, double gradient_scale) {
  Observation observation;
  std::map<size_t, ChunkObserver::Histograms> variables;
  double gradient = 0, weights = 0;
  for (const ChunkObserver& chunk : chunks) {
    gradient += chunk.gradient_squares_;
    weights += chunk.weight_squares_;
    for (const auto& [variable, histograms] : chunk.variables_) {
      variables[variable].gradient.Add(histograms.gradient);
      variables[variable].weights.Add(histograms.weights);
    }
  }
  observation.gradient_norm = std::sqrt(gradient) / gradient_scale;
  observation.weight_norm = std::sqrt(weights);
  for (auto& [variable, histograms] : variables) {
    observation.variables.push_back({chunks.front().layout_->variables()[variable].name,
                                     std::move(histograms.gradient),
                                     std::move(histograms.weights)});
  }
  return observation;
}

}  // namespace muster
