// The variables of a job: names, shapes, and positions in the parameter buffer, whose layout is the
// same in the server and all workers. The server needs no other knowledge of the model. Jobs whose
// network was not built by Muster have a layout too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster {

// config::Initializer as a plain struct; the kinds have the same numbers.
struct Initializer {
  enum class Kind { kConstant = 1, kTruncatedNormal, kHe, kXavier, kDirac, kOrthogonal };
  Kind kind = Kind::kConstant;
  float value = 0;           // kConstant
  float stddev = 0;          // kTruncatedNormal
  float gain = 1;            // kOrthogonal
  bool draw_others = false;  // kDirac
};

// A trained tensor, or a running statistic of a normalisation. Its elements are at [offset, offset
// + count) of the parameter buffer, in the order [out, height, width, in / groups] (convolution),
// [out, in] (dense) or [channels] (all others).
struct Variable {
  enum class Kind {
    kWeights,
    kBias,
    kScale,  // of a normalisation
    kShift,
    // A running statistic, which is not trained. In place of a gradient, a worker delivers the
    // slice's statistic multiplied by the slice's share of the batch's samples, so that the tree
    // sum is the batch's statistic s. The server updates w ← w + statistic_momentum (s - w),
    // without learning rate or weight decay.
    kStatistic,
  };
  std::string name;  // <layer>/weights, bias, scale, shift, running_mean or running_variance
  Kind kind = Kind::kWeights;
  int layer;  // the layer that reads it, in the order of the forward pass
  std::vector<int64_t> shape;
  size_t offset;  // in floats, a multiple of 16 (64 bytes)
  size_t count;   // in floats
  int64_t fan_in, fan_out;
  Initializer initializer;
  std::optional<float> weight_decay;  // empty: the optimizer's, which may exclude this kind
  float learning_rate_multiplier = 1;
  float statistic_momentum = 0;  // kStatistic

  std::string ShapeString() const;  // [64,5,5,3]
};

// Immutable. The variables are stored in one buffer, in the order of the forward pass.
class VariableLayout {
 public:
  // Every variable begins at a multiple of this many floats (64 bytes).
  static constexpr size_t kAlignFloats = 16;

  VariableLayout() = default;
  // `description` has a line per layer with everything that workers and server must agree on.
  VariableLayout(std::vector<Variable> variables, std::vector<std::string> description);

  const std::vector<Variable>& variables() const { return variables_; }
  size_t arena_floats() const { return arena_floats_; }
  int64_t parameter_count() const;  // counts only trained variables, not running statistics
  const std::vector<std::string>& description() const { return description_; }
  // XXH3-64 of the description.
  uint64_t hash() const { return hash_; }
  // Returns the variable that contains the float at this offset, or that precedes this padding.
  const Variable& VariableAt(size_t at) const;

 private:
  std::vector<Variable> variables_;
  std::vector<std::string> description_;
  size_t arena_floats_ = 0;
  uint64_t hash_ = 0;
};

}  // namespace muster
