// Statistics of the gradient and the new weights of one step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "proto/tensorboard.pb.h"

namespace muster {

// A histogram whose buckets derive from the bits of a float: eight per power of two, on either side
// of zero, so that counting takes a shift and an addition.
class ValueHistogram {
 public:
  void Add(std::span<const float> values);
  void Add(const ValueHistogram& other);

  uint64_t count() const { return count_; }
  // Contains the buckets from the first to the last nonempty one, in ascending order.
  tensorboard::Histogram ToProto() const;

 private:
  // Sign, exponent and three bits of the mantissa.
  static constexpr int kShift = 20;
  static constexpr size_t kBuckets = size_t{1} << (32 - kShift);

  std::vector<uint64_t> buckets_ = std::vector<uint64_t>(kBuckets);
  uint64_t count_ = 0;
  double sum_ = 0, squares_ = 0;
  float min_ = std::numeric_limits<float>::infinity();
  float max_ = -std::numeric_limits<float>::infinity();
};

// What to compute for a step.
enum class Observe { kNothing, kNorms, kHistograms };

struct Observation {
  // Euclidean norms over all trained variables. The gradient norm is taken before clip_norm.
  double gradient_norm = 0, weight_norm = 0;

  struct OfVariable {
    std::string name;
    ValueHistogram gradient, weights;
  };
  std::vector<OfVariable> variables;  // with kHistograms
};

}  // namespace muster
