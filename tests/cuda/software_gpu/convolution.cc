#include "tests/cuda/software_gpu/convolution.h"

#include <algorithm>
#include <cstddef>

namespace muster::software_gpu {
namespace {

// Calls touch(at_input, at_output, tap) for each pair of an input and an output pixel that a tap of
// the filter connects. The arguments are the index of the pixels' first channel, and of the tap.
template <typename F>
void ForTaps(const ConvolutionShape& s, const F& touch) {
  for (int64_t n = 0; n < s.batch; ++n) {
    for (int64_t y = 0; y < s.out_height; ++y) {
      for (int64_t x = 0; x < s.out_width; ++x) {
        const int64_t out = ((n * s.out_height + y) * s.out_width + x) * s.filters;
        for (int64_t r = 0; r < s.filter_height; ++r) {
          const int64_t row = y * s.stride_height - s.pad_height + r * s.dilation_height;
          if (row < 0 || row >= s.height) continue;
          for (int64_t q = 0; q < s.filter_width; ++q) {
            const int64_t column = x * s.stride_width - s.pad_width + q * s.dilation_width;
            if (column < 0 || column >= s.width) continue;
            const int64_t in = ((n * s.height + row) * s.width + column) * s.channels;
            touch(in, out, r * s.filter_width + q);
          }
        }
      }
    }
  }
}

}  // namespace

void ConvolveForward(const ConvolutionShape& s, const std::vector<float>& input,
                     const std::vector<float>& filter, std::vector<float>& output) {
  const int64_t taps = s.filter_height * s.filter_width;
  const int64_t per_group = s.channels / s.groups;
  const int64_t filters = s.filters / s.groups;
  // [tap][channel of a group][filter], so that the innermost loop runs over adjacent values.
  std::vector<float> turned(filter.size());
  for (int64_t k = 0; k < s.filters; ++k) {
    for (int64_t t = 0; t < taps; ++t) {
      for (int64_t c = 0; c < per_group; ++c) {
        turned[static_cast<size_t>((t * per_group + c) * s.filters + k)] =
            filter[static_cast<size_t>((k * taps + t) * per_group + c)];
      }
    }
  }
  std::fill(output.begin(), output.end(), 0.0f);
  ForTaps(s, [&](int64_t in, int64_t out, int64_t tap) {
    for (int64_t g = 0; g < s.groups; ++g) {
      float* const to = output.data() + out + g * filters;
      for (int64_t c = 0; c < per_group; ++c) {
        const float x = input[static_cast<size_t>(in + g * per_group + c)];
        const float* const w = turned.data() + (tap * per_group + c) * s.filters + g * filters;
        for (int64_t k = 0; k < filters; ++k) to[k] += x * w[k];
      }
    }
  });
}

void ConvolveBackwardData(const ConvolutionShape& s, const std::vector<float>& filter,
                          const std::vector<float>& output_gradient,
                          std::vector<float>& input_gradient) {
  const int64_t taps = s.filter_height * s.filter_width;
  const int64_t per_group = s.channels / s.groups;
  std::fill(input_gradient.begin(), input_gradient.end(), 0.0f);
  ForTaps(s, [&](int64_t in, int64_t out, int64_t tap) {
    for (int64_t k = 0; k < s.filters; ++k) {
      const float gradient = output_gradient[static_cast<size_t>(out + k)];
      const float* const w = filter.data() + (k * taps + tap) * per_group;
      float* const to = input_gradient.data() + in + k / (s.filters / s.groups) * per_group;
      for (int64_t c = 0; c < per_group; ++c) to[c] += gradient * w[c];
    }
  });
}

void ConvolveBackwardFilter(const ConvolutionShape& s, const std::vector<float>& input,
                            const std::vector<float>& output_gradient,
                            std::vector<float>& filter_gradient) {
  const int64_t taps = s.filter_height * s.filter_width;
  const int64_t per_group = s.channels / s.groups;
  std::fill(filter_gradient.begin(), filter_gradient.end(), 0.0f);
  ForTaps(s, [&](int64_t in, int64_t out, int64_t tap) {
    for (int64_t k = 0; k < s.filters; ++k) {
      const float gradient = output_gradient[static_cast<size_t>(out + k)];
      const float* const x = input.data() + in + k / (s.filters / s.groups) * per_group;
      float* const to = filter_gradient.data() + (k * taps + tap) * per_group;
      for (int64_t c = 0; c < per_group; ++c) to[c] += gradient * x[c];
    }
  });
}

}  // namespace muster::software_gpu
