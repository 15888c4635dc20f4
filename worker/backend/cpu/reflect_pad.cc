// Reflection padding. The gradient of a pixel is the sum of those of its mirror images.
#include <algorithm>

#include "common/base/reflected.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/ops.h"

namespace muster::cpu {
namespace {

class ReflectPad : public TypedOp<float> {
 public:
  ReflectPad(const ReflectPadSpec& spec, const OpRequest& request)
      : spec_(spec),
        in_(request.layer.input_shape),
        out_(request.layer.output_shape),
        batch_(request.options.batch) {}

  void ForwardTyped(const TypedForwardArgs<float>& args) override {
    ParallelFor(batch_ * out_.height, [&](int64_t row) {
      const int64_t sample = row / out_.height;
      const int64_t in_row = Reflected(row % out_.height - spec_.rows, in_.height);
      const float* const from = args.input + (sample * in_.height + in_row) * row_floats(in_);
      float* to = args.output + row * row_floats(out_);
      for (int64_t column = 0; column < out_.width; ++column) {
        const int64_t in_column = Reflected(column - spec_.columns, in_.width);
        to = std::copy_n(from + in_column * in_.channels, in_.channels, to);
      }
    });
  }

  void BackwardTyped(const TypedBackwardArgs<float>& args) override {
    ParallelFor(batch_ * in_.height, [&](int64_t row) {
      const int64_t sample = row / in_.height;
      const ReflectedPlaces rows = PlacesOf(row % in_.height, in_.height, spec_.rows);
      float* const to = args.input_gradient + row * row_floats(in_);
      std::fill_n(to, row_floats(in_), 0.0f);
      for (int i = 0; i < rows.count; ++i) {
        const float* const from =
            args.output_gradient + (sample * out_.height + rows.at[i]) * row_floats(out_);
        AddRow(from, to);
      }
    });
  }

 private:
  static int64_t row_floats(const Shape& shape) { return shape.width * shape.channels; }

  void AddRow(const float* from, float* to) const {
    for (int64_t column = 0; column < in_.width; ++column, to += in_.channels) {
      const ReflectedPlaces columns = PlacesOf(column, in_.width, spec_.columns);
      for (int j = 0; j < columns.count; ++j) {
        const float* const pixel = from + columns.at[j] * in_.channels;
        for (int64_t c = 0; c < in_.channels; ++c) to[c] += pixel[c];
      }
    }
  }

  const ReflectPadSpec spec_;
  const Shape in_, out_;
  const int64_t batch_;
};

}  // namespace

std::unique_ptr<Op> Make(const ReflectPadSpec& spec, const OpRequest& request) {
  return std::make_unique<ReflectPad>(spec, request);
}

}  // namespace muster::cpu
