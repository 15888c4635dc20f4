#include "worker/backend/cpu/winograd_weights.h"

#include "common/base/error.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/vec.h"
#include "worker/backend/cpu/winograd_transforms.h"

namespace muster::cpu::winograd {
namespace {

constexpr int64_t kTaps = 9;

// rows[i][j] → rows[j][i].
void Transpose(FloatVec (&rows)[kLanes]) {
  FloatVec pairs[kLanes], fours[kLanes];
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = __builtin_shuffle(rows[i], rows[i + 1], IntVec{0, 8, 2, 10, 4, 12, 6, 14});
    pairs[i + 1] = __builtin_shuffle(rows[i], rows[i + 1], IntVec{1, 9, 3, 11, 5, 13, 7, 15});
  }
  for (int i = 0; i < 8; i += 4) {
    for (int j = 0; j < 2; ++j) {
      const FloatVec a = pairs[i + j], b = pairs[i + j + 2];
      fours[i + j] = __builtin_shuffle(a, b, IntVec{0, 1, 8, 9, 4, 5, 12, 13});
      fours[i + j + 2] = __builtin_shuffle(a, b, IntVec{2, 3, 10, 11, 6, 7, 14, 15});
    }
  }
  for (int j = 0; j < 4; ++j) {
    rows[j] = __builtin_shuffle(fours[j], fours[j + 4], IntVec{0, 1, 2, 3, 8, 9, 10, 11});
    rows[j + 4] = __builtin_shuffle(fours[j], fours[j + 4], IntVec{4, 5, 6, 7, 12, 13, 14, 15});
  }
}

}  // namespace

TransformedWeights::TransformedWeights(int64_t inputs, int64_t outputs, Use use)
    : inputs_(inputs),
      outputs_(outputs),
      use_(use),
      position_(inputs * outputs + 16) {}  // not a power of two, see TileMatrices

size_t TransformedWeights::bytes() const {
  return static_cast<size_t>(kPositions * position_) * sizeof(float);
}

void TransformedWeights::Allocate() {
  if (data_.floats().empty()) data_ = Arena(static_cast<size_t>(kPositions * position_));
}

void TransformedWeights::Update(const float* weights, int64_t version) {
  if (version_ == version) return;
  MUSTER_CHECK(!data_.floats().empty());
  version_ = version;
  ParallelFor(outputs_ / kLanes, [&](int64_t panel) {
    use_ == Use::kForward ? TransformForward(weights, panel * kLanes)
                          : TransformBackwardData(weights, panel * kLanes);
  });
}

ConstPanels TransformedWeights::At(int64_t position) const {
  const int64_t rows = use_ == Use::kForward ? inputs_ : outputs_;
  return {data_.floats().data() + position * position_, rows * kLanes};
}

// The weights are stored and loaded as vectors over the inputs; the panels need vectors over the
// outputs.
void TransformedWeights::TransformForward(const float* weights, int64_t output) {
  for (int64_t c = 0; c < inputs_; c += kLanes) {
    FloatVec rows[kPositions][kLanes];
    for (int64_t k = 0; k < kLanes; ++k) {
      const float* const filter = weights + (output + k) * kTaps * inputs_ + c;
      TransformWeights([&](int i, int j) { return LoadFloats(filter + (3 * i + j) * inputs_); },
                       [&](int position, FloatVec vec) { rows[position][k] = vec; });
    }
    for (int position = 0; position < kPositions; ++position) {
      Transpose(rows[position]);
      float* const to =
          data_.floats().data() + position * position_ + output * inputs_ + c * kLanes;
      for (int64_t i = 0; i < kLanes; ++i) Store(to + i * kLanes, rows[position][i]);
    }
  }
}

void TransformedWeights::TransformBackwardData(const float* weights, int64_t output) {
  for (int64_t c = 0; c < inputs_; c += kLanes) {
    for (int64_t k = output; k < output + kLanes; ++k) {
      const float* const filter = weights + k * kTaps * inputs_ + c;
      float* const to = data_.floats().data() + c * outputs_ + k * kLanes;
      TransformWeights([&](int i, int j) { return LoadFloats(filter + (8 - 3 * i - j) * inputs_); },
                       [&](int position, FloatVec vec) { Store(to + position * position_, vec); });
    }
  }
}

}  // namespace muster::cpu::winograd
