// The interface of our own kernels for host code. Each function queues work and returns. T is
// float, Bf16 or Fp16. Element counts are below 2^31 (RequireCount). Tensors are channels-last.
// Reductions are fixed trees that depend only on shapes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/element_type.h"
#include "common/graph/layer_specs.h"
#include "common/graph/pixel_scale.h"
#include "worker/backend/cuda/element.h"
#include "worker/backend/cuda/target.h"
#include "worker/backend/op.h"

namespace muster::cuda {

// elementwise.cu. `to` may be any of the inputs. `kept`: the function's input or output, whichever
// its traits say that backward reads.
template <ElementwiseSpec Spec, typename T>
void Elementwise(const Target& target, const Spec& spec, T* to, const T* from, int64_t count);
template <ElementwiseSpec Spec, typename T>
void ElementwiseGradient(const Target& target, const Spec& spec, T* to, const T* kept,
                         const T* gradient, int64_t count);
template <typename T>
void Add(const Target& target, T* to, const T* a, const T* b, bool relu, int64_t count);
// Like Backend::AddGradients.
template <typename T>
void AddGradients(const Target& target, T* to, const T* a, const T* b, const T* relu_output,
                  int64_t count);
// to = (to + from) / 2.
template <typename T>
void Average(const Target& target, T* to, const T* from, int64_t count);
// gradient = 0 where relu_output is not above zero.
template <typename T>
void MaskByRelu(const Target& target, T* gradient, const T* relu_output, int64_t count);
template <typename To, typename From>
void Convert(const Target& target, To* to, const From* from, int64_t count);
void RoundSlice(const Target& target, ElementType wire, float* values, int64_t count);
void AddSlices(const Target& target, ElementType wire, float* to, const float* a, const float* b,
               int64_t count);
// Adds bias (may be null) to each row of `channels`, then applies the activation. In place.
template <typename T>
void AddBias(const Target& target, T* values, const float* bias, bool relu, int64_t rows,
             int channels);

// rows.cu. Copies `width` elements of each row.
template <typename T>
void CopyRows(const Target& target, T* to, int to_stride, const T* from, int from_stride, int width,
              int64_t rows);

// dropout.cu. The random numbers are those of a RandomStream with this key, for the epoch and
// sample.
struct DropoutDraw {
  uint32_t key[2];
  uint32_t epoch;
  float rate, scale;
};
template <typename T>
void Dropout(const Target& target, const DropoutDraw& draw, const int64_t* sample_ids,
             uint8_t* kept, T* to, const T* from, int64_t batch, int elements);
// relu_output masks the gradient. It may be null.
template <typename T>
void DropoutGradient(const Target& target, float scale, const uint8_t* kept, T* to,
                     const T* gradient, const T* relu_output, int64_t count);

// images.cu
inline constexpr int kNormalizedChannels = 4;  // at most, if the recipe has means or deviations
// ImageRecipe for kernels, with the epoch and the stream's key.
struct ImagePlan {
  int height, width, channels, crop_height, crop_width, padding;
  uint32_t key[2], epoch;
  bool reflect, augment, flip, alternate_flip, standardize;
  float brightness, contrast_low, contrast_high;
  bool normalizes;  // with the following, instead of 0 and 255
  double mean[kNormalizedChannels], stddev[kNormalizedChannels];

  // constexpr because kernels also call them.
  constexpr int64_t stored() const { return int64_t{height} * width * channels; }
  constexpr int cropped() const { return crop_height * crop_width * channels; }
  // Whether the changes to an image depend on its mean.
  constexpr bool measures() const {
    return standardize || (augment && (contrast_low != 1 || contrast_high != 1));
  }
};
// For each image and channel, ImageSums holds Σ x and Σ x² of the crop, and ImageMap holds the map
// y = (x - centre) * scale + offset. For each image, ImagePlace holds the origin of its crop.
struct ImageSums {
  uint64_t sum, squares;
};
struct ImageMap {
  float centre, scale, offset;
};
struct ImagePlace {
  int top, left;
  bool flip;
};
struct ImageBatch {
  const uint8_t* images;
  const int64_t* sample_ids;
  int count;
  ImageSums* sums;  // unused unless the plan measures()
  ImageMap* maps;
  ImagePlace* places;
};
template <typename T>
void MakeImages(const Target& target, const ImagePlan& plan, const ImageBatch& batch, T* to);
void GatherLabels(const Target& target, const int32_t* labels, const int64_t* sample_ids,
                  int32_t* to, int count);
// Like Backend::ScalePixels.
template <typename T>
void ScalePixels(const Target& target, T* to, const uint8_t* from, int64_t count,
                 const PixelScale& scale);
// Like Backend::MirrorImages; `count` values.
template <typename T>
void MirrorImages(const Target& target, T* to, const T* from, int64_t count, int width,
                  int channels);

// pool.cu
struct PoolShape {
  int batch, in_height, in_width, out_height, out_width, channels;
  int kernel_height, kernel_width, stride_height, stride_width, pad_top, pad_left;
};
// `index` holds the position of each output's maximum in its window; it is null in inference. With
// after_relu, outputs that are not above zero get no gradient.
template <typename T, typename Index>
void MaxPool(const Target& target, const PoolShape& shape, const T* in, T* out, Index* index,
             bool after_relu);
template <typename T, typename Index>
void MaxPoolGradient(const Target& target, const PoolShape& shape, const T* out_gradient,
                     const Index* index, T* in_gradient);
template <typename T>
void AvgPool(const Target& target, const PoolShape& shape, const T* in, T* out);
template <typename T>
void AvgPoolGradient(const Target& target, const PoolShape& shape, const T* out_gradient,
                     const T* relu_output, T* in_gradient);
template <typename T>
void GlobalAvgPool(const Target& target, const T* in, T* out, int batch, int pixels, int channels);
template <typename T>
void GlobalAvgPoolGradient(const Target& target, const T* out_gradient, T* in_gradient, int batch,
                           int pixels, int channels);

// reflect_pad.cu
struct ReflectPadShape {
  int batch, height, width, channels;  // of the input
  int rows, columns;                   // added on each side

  // constexpr because kernels also call them.
  constexpr int out_height() const { return height + 2 * rows; }
  constexpr int out_width() const { return width + 2 * columns; }
};
template <typename T>
void ReflectPad(const Target& target, const ReflectPadShape& shape, const T* in, T* out);
template <typename T>
void ReflectPadGradient(const Target& target, const ReflectPadShape& shape, const T* out_gradient,
                        T* in_gradient);

// lrn.cu. `terms` holds a float for each element.
template <typename T>
void Lrn(const Target& target, const LrnSpec& spec, const T* in, T* out, int64_t count,
         int channels);
template <typename T>
void LrnGradient(const Target& target, const LrnSpec& spec, const T* in, const T* out_gradient,
                 T* in_gradient, float* terms, bool after_relu, int64_t count, int channels);

// softmax.cu
template <typename T>
void Softmax(const Target& target, const T* in, T* out, int64_t pixels, int channels);
template <typename T>
void SoftmaxGradient(const Target& target, const T* out, const T* out_gradient, T* in_gradient,
                     int64_t pixels, int channels);

// column_sums.cu. Sums over the rows of a matrix [rows, channels].
struct ColumnParts {
  ColumnParts(int64_t rows, int channels);
  int64_t rows, part_rows;
  int channels;
  int parts;  // of part_rows rows, the last of fewer; summed separately, then added in a tree
  size_t scratch_bytes(int sums) const;
};
// to[c] = Σ values[r, c]. `scratch` has scratch_bytes(1).
template <typename T>
void ColumnSums(const Target& target, const ColumnParts& parts, const T* values, double* scratch,
                float* to);

// batch_norm.cu. One number for each channel.
struct NormState {
  float *mean, *variance, *inverse, *slope;  // inverse: 1 / √(variance + epsilon)
};
struct NormGradients {
  float *mean, *slope;  // Σ dz / n, Σ dz (x - mean) / (n (variance + epsilon))
};
// Computes the statistics of the batch. `scratch` has scratch_bytes(2).
template <typename T>
void BatchStatistics(const Target& target, const ColumnParts& parts, const T* in, double* scratch,
                     float epsilon, const float* scale, const NormState& state);
void GivenStatistics(const Target& target, const float* mean, const float* variance, float epsilon,
                     const float* scale, int channels, const NormState& state);
// out = activation((in - mean) slope + shift + added). added may be null.
template <typename T>
void Normalise(const Target& target, const NormState& state, const float* shift,
               Activation activation, const T* in, const T* added, T* out, int64_t rows,
               int channels);
struct NormBackward {
  NormState state;
  const float* shift;
  Activation activation;
  // Whether the output shows where the activation passed its argument. Otherwise it is recomputed.
  bool from_output;
  float statistic_weight;
  bool unbiased;
  bool frozen;  // mean and variance do not depend on the input
  float *scale_gradient, *shift_gradient, *mean_statistic, *variance_statistic;
  NormGradients gradients;
};
// `scratch` has scratch_bytes(2). dz receives the gradient of the activation's argument. It may be
// null or equal to out_gradient.
template <typename T>
void NormSums(const Target& target, const ColumnParts& parts, const NormBackward& norm, const T* in,
              const T* out, const T* out_gradient, T* dz, double* scratch);
// `has_dz`: whether out_gradient is already the dz of NormSums.
template <typename T>
void NormInputGradient(const Target& target, const NormBackward& norm, const T* in, const T* out,
                       const T* out_gradient, bool has_dz, T* in_gradient, int64_t rows,
                       int channels);

// group_norm.cu. A block, which is normalised on its own, has `pixels` rows of channels, divided
// into groups. `count` groups of all blocks.
struct GroupShape {
  int64_t count;
  int pixels, channels, groups;

  // constexpr because kernels also call them.
  constexpr int width() const { return channels / groups; }
  constexpr int64_t values() const { return int64_t{pixels} * width(); }  // of a group
  constexpr int64_t rows() const { return count / groups * pixels; }
};
// One number for each group: mean and 1 / √(variance + epsilon), or the means of scale dy and of
// scale dy (x - mean) inverse.
struct GroupState {
  float *mean, *inverse;
};
// Writes `state`.
template <typename T>
void GroupNorm(const Target& target, const GroupShape& shape, float epsilon, const float* scale,
               const float* shift, bool relu, const T* in, T* out, const GroupState& state);
// `scratch` has scratch_bytes(2) of `parts`.
template <typename T>
void GroupNormScaleGradient(const Target& target, const GroupShape& shape, const ColumnParts& parts,
                            const GroupState& state, const T* in, const T* out_gradient,
                            double* scratch, float* scale_gradient, float* shift_gradient);
// Writes `means` and in_gradient, which may be out_gradient.
template <typename T>
void GroupNormInputGradient(const Target& target, const GroupShape& shape, const GroupState& state,
                            const GroupState& means, const float* scale, const T* in,
                            const T* out_gradient, T* in_gradient);

// loss.cu
struct SampleLoss {
  double loss;
  int32_t rank;  // as in LossSums::Add
};
struct LossBatch {
  int samples, outputs, first_class;  // as Layer::first_class
  SampleLoss* results;                // [samples]
  float* probabilities;               // of softmax: [samples, outputs], saved for the gradient
};
// args.state is not used.
template <typename T, typename Spec>
void SampleLosses(const Target& target, const Spec& spec, const LossArgs& args,
                  const LossBatch& batch, int32_t* predictions);
template <typename T, typename Spec>
void LossGradient(const Target& target, const Spec& spec, const LossArgs& args,
                  const LossBatch& batch, float scale, bool after_relu, T* gradient);
// mean_squared_error of values (Layer::is_of_values): one logit for each sample.
template <typename T>
void ValueLosses(const Target& target, const LossArgs& args, SampleLoss* results,
                 int32_t* predictions, int samples);
template <typename T>
void ValueGradient(const Target& target, const LossArgs& args, float scale, bool after_relu,
                   T* gradient, int samples);
void AddUpLosses(const Target& target, const SampleLoss* results, LossSums* sums, int batch);

// im2col.cu
struct ConvShape {
  int batch, in_height, in_width, in_channels, out_height, out_width, filters, groups;
  int kernel_height, kernel_width, stride_height, stride_width, pad_top, pad_left;

  // constexpr because kernels also call them.
  constexpr int group_channels() const { return in_channels / groups; }
  constexpr int group_filters() const { return filters / groups; }
  constexpr int patch() const { return kernel_height * kernel_width * group_channels(); }
  constexpr int64_t out_pixels() const { return int64_t{out_height} * out_width; }  // of an image
  constexpr int64_t in_elements() const { return int64_t{in_height} * in_width * in_channels; }
};
// Converts shape.batch images. columns: [groups, batch * out_pixels, patch].
template <typename T>
void ImageToColumns(const Target& target, const ConvShape& shape, const T* images, T* columns);
// The reverse: sums each input's occurrences in the columns. The sum is zero where relu_output,
// which may be null, is not above zero.
template <typename T>
void ColumnsToImage(const Target& target, const ConvShape& shape, const float* columns,
                    const T* relu_output, T* images);

// depthwise.cu. Convolutions whose groups have one input channel.
template <typename T>
void Depthwise(const Target& target, const ConvShape& shape, const T* in, const float* weights,
               const float* bias, bool relu, T* out);
template <typename T>
void DepthwiseInputGradient(const Target& target, const ConvShape& shape, const T* out_gradient,
                            const float* weights, const T* relu_output, T* in_gradient);
size_t DepthwiseScratchBytes(const ConvShape& shape);
template <typename T>
void DepthwiseWeightsGradient(const Target& target, const ConvShape& shape, const T* in,
                              const T* out_gradient, double* scratch, float* weights_gradient);

}  // namespace muster::cuda
