#include "worker/backend/cpu/dense_input_gradient.h"

#include <omp.h>

#include <algorithm>

#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/vec.h"

namespace muster::cpu {
namespace {

// The piece of W that fits into the cache: 128 units of 24 panels of inputs, 96 KiB.
constexpr int64_t kUnits = 128, kPanels = 24;

// Distances that are not powers of two place the panels in different cache sets.
constexpr int64_t kPadding = 16;
constexpr int64_t kWeightsPanel = kUnits * kLanes + kPadding;

}  // namespace

bool DenseInputGradient::Fits(int64_t batch, int64_t inputs, int64_t units) {
  constexpr int64_t kBadStride = 512, kLeastBatch = 16, kLeastWeights = 1 << 17;
  return inputs % kBadStride == 0 && units % kLanes == 0 && batch >= kLeastBatch &&
         inputs * units >= kLeastWeights && __builtin_cpu_supports("avx2") &&
         !__builtin_cpu_supports("avx512f");
}

DenseInputGradient::DenseInputGradient(int64_t batch, int64_t inputs, int64_t units)
    : batch_(batch),
      inputs_(inputs),
      units_(units),
      gradient_panel_(batch * kLanes + kPadding),
      result_panel_(batch * kLanes + kPadding),
      threads_(omp_get_max_threads()) {}

size_t DenseInputGradient::scratch_floats() const {
  return static_cast<size_t>(units_ / kLanes * gradient_panel_ +
                             threads_ * kPanels * (kWeightsPanel + result_panel_));
}

void DenseInputGradient::Run(const float* output_gradient, const float* weights, const float* mask,
                             float* input_gradient, float* scratch) const {
  const Panels gradient = {scratch, gradient_panel_};
  float* const of_threads = scratch + units_ / kLanes * gradient_panel_;
  ParallelFor(units_ / kLanes,
              [&](int64_t panel) { CopyGradient(output_gradient, panel, gradient); });
  const int64_t panels = inputs_ / kLanes;
  ParallelFor((panels + kPanels - 1) / kPanels, [&](int64_t block) {
    float* const mine =
        of_threads + omp_get_thread_num() * kPanels * (kWeightsPanel + result_panel_);
    const Panels piece = {mine, kWeightsPanel};
    const Panels result = {mine + kPanels * kWeightsPanel, result_panel_};
    const Range here = {block * kPanels, std::min((block + 1) * kPanels, panels)};
    for (int64_t unit = 0; unit < units_; unit += kUnits) {
      const Range units = {unit, std::min(unit + kUnits, units_)};
      CopyWeights(weights, units, here, piece);
      const ConstPanels columns = {gradient.data + unit / kLanes * gradient.panel, gradient.panel};
      for (int64_t strip = 0; strip < StripCount(here.size()); ++strip) {
        MultiplyStrip(columns, piece, result, batch_, units.size(), Strip(here.size(), strip),
                      unit == 0);
      }
    }
    CopyResult(result, here, mask, input_gradient);
  });
}

void DenseInputGradient::CopyGradient(const float* output_gradient, int64_t panel,
                                      const Panels& to) const {
  for (int64_t n = 0; n < batch_; ++n) {
    Store(to.data + panel * to.panel + n * kLanes,
          LoadFloats(output_gradient + n * units_ + panel * kLanes));
  }
}

void DenseInputGradient::CopyWeights(const float* weights, const Range& units, const Range& panels,
                                     const Panels& to) const {
  // A row's piece is too short for the hardware prefetcher to find the next one.
  constexpr int64_t kAhead = 4, kPanelsOfALine = 2;
  for (int64_t u = units.begin; u < units.end; ++u) {
    const float* const row = weights + u * inputs_;
    const float* const later = weights + std::min(u + kAhead, units_ - 1) * inputs_;
    for (int64_t panel = panels.begin; panel < panels.end; panel += kPanelsOfALine) {
      __builtin_prefetch(later + panel * kLanes);
    }
    for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
      Store(to.data + (panel - panels.begin) * to.panel + (u - units.begin) * kLanes,
            LoadFloats(row + panel * kLanes));
    }
  }
}

void DenseInputGradient::CopyResult(const ConstPanels& from, const Range& panels, const float* mask,
                                    float* input_gradient) const {
  for (int64_t n = 0; n < batch_; ++n) {
    for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
      const int64_t place = n * inputs_ + panel * kLanes;
      FloatVec vec = LoadFloats(from.data + (panel - panels.begin) * from.panel + n * kLanes);
      if (mask != nullptr) vec = LoadFloats(mask + place) > 0 ? vec : FloatVec{};
      Store(input_gradient + place, vec);
    }
  }
}

}  // namespace muster::cpu
