// Convolutions as plain loops.
#include "tests/cuda/software_gpu/cudnn.h"

namespace muster::software_gpu {
namespace {

// One pixel of x, one of y, and the filters' weights for one tap.
struct Tap {
  float *x, *w, *y;
};

void ConvolveTap(const ConvolutionProblem& p, ConvolutionPass pass, const Tap& tap) {
  const int64_t channels = p.w.c, filters = p.w.n / p.convolution.groups;
  const int64_t step = p.w.h * p.w.w * channels;  // from one filter to the next
  float* y = tap.y;
  float* __restrict w = tap.w;
  for (int64_t group = 0; group < p.convolution.groups; ++group) {
    float* const __restrict x = tap.x + group * channels;
    for (int64_t filter = 0; filter < filters; ++filter, ++y, w += step) {
      float sum = *y;
      if (pass == ConvolutionPass::kX) {
        for (int64_t c = 0; c < channels; ++c) x[c] += sum * w[c];
      } else if (pass == ConvolutionPass::kW) {
        for (int64_t c = 0; c < channels; ++c) w[c] += sum * x[c];
      } else {
        for (int64_t c = 0; c < channels; ++c) sum += x[c] * w[c];
        *y = sum;
      }
    }
  }
}

}  // namespace

void Convolve(const ConvolutionProblem& p, ConvolutionPass pass,
              std::array<std::vector<float>, 3>& numbers) {
  const cudnnConvolutionStruct& c = p.convolution;
  auto& [x, w, y] = numbers;
  for (int64_t out = 0; out < p.y.n * p.y.h * p.y.w; ++out) {
    const int64_t image = out / (p.y.h * p.y.w);
    const int64_t top = out / p.y.w % p.y.h * c.stride_height - c.pad_height;
    const int64_t left = out % p.y.w * c.stride_width - c.pad_width;
    for (int64_t tap = 0; tap < p.w.h * p.w.w; ++tap) {
      const int64_t row = top + tap / p.w.w, column = left + tap % p.w.w;
      if (row < 0 || row >= p.x.h || column < 0 || column >= p.x.w) continue;
      const int64_t in = (image * p.x.h + row) * p.x.w + column;
      ConvolveTap(
          p, pass,
          {.x = x.data() + in * p.x.c, .w = w.data() + tap * p.w.c, .y = y.data() + out * p.y.c});
    }
  }
}

}  // namespace muster::software_gpu
