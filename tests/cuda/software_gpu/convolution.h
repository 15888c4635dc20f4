// Convolutions on the software GPU: plain loops over floats, channels last.
#pragma once

#include <cstdint>
#include <vector>

namespace muster::software_gpu {

struct ConvolutionShape {
  int64_t batch, height, width, channels;
  int64_t out_height, out_width, filters;
  int64_t filter_height, filter_width;
  int64_t pad_height, pad_width, stride_height, stride_width;
  int64_t dilation_height = 1, dilation_width = 1;
  int64_t groups = 1;
};

// input [batch, height, width, channels], filter [filters, filter_height, filter_width, channels /
// groups], output [batch, out_height, out_width, filters]. Overwrites the result.
void ConvolveForward(const ConvolutionShape& shape, const std::vector<float>& input,
                     const std::vector<float>& filter, std::vector<float>& output);
void ConvolveBackwardData(const ConvolutionShape& shape, const std::vector<float>& filter,
                          const std::vector<float>& output_gradient,
                          std::vector<float>& input_gradient);
void ConvolveBackwardFilter(const ConvolutionShape& shape, const std::vector<float>& input,
                            const std::vector<float>& output_gradient,
                            std::vector<float>& filter_gradient);

}  // namespace muster::software_gpu
