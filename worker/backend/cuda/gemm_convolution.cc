// Convolutions by im2col and cuBLAS, a few images at a time to keep the columns small. A 1x1
// convolution needs no columns: the images already are the matrix.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <optional>

#include "worker/backend/cuda/convolution.h"
#include "worker/backend/cuda/convolution_instances.h"
#include "worker/backend/cuda/products.h"

namespace muster::cuda {
namespace {

// The kernels count the columns of an image in 32 bits.
void RequirePatches(int64_t columns) {
  if (columns < int64_t{1} << 31) return;
  throw Error(ExitCode::kFailure,
              "the patches of one image have {} values, expected fewer than 2^31: use smaller "
              "images or cuDNN",
              columns);
}

// The common part of the passes.
template <typename T>
class GemmPass {
 public:
  // column_bytes: the size of a value in the columns.
  GemmPass(const ConvolutionRequest& request, size_t column_bytes)
      : card_(request.card), shape_(request.shape), type_(CudaTypeOf(card_.activation_type())) {
    const ConvShape& s = shape_;
    const Pads& pads = request.pads;
    direct_ = s.groups == 1 && s.kernel_height == 1 && s.kernel_width == 1 &&
              s.stride_height == 1 && s.stride_width == 1 && pads.top == 0 && pads.left == 0 &&
              pads.bottom == 0 && pads.right == 0;
    RequirePatches(s.out_pixels() * s.patch() * s.groups);
    const int64_t image =
        s.out_pixels() * s.patch() * s.groups * static_cast<int64_t>(column_bytes);
    const int64_t most = card_.options().columns_bytes;
    images_ = direct_ ? s.batch : static_cast<int>(std::clamp<int64_t>(most / image, 1, s.batch));
    bytes_ = direct_ ? 0 : static_cast<size_t>(image) * static_cast<size_t>(images_);
  }

 protected:
  // Calls body(shape, first image) for each set of images that are multiplied together.
  template <typename Body>
  void ForImages(const Body& body) const {
    for (int first = 0; first < shape_.batch; first += images_) {
      ConvShape part = shape_;
      part.batch = std::min(images_, shape_.batch - first);
      body(part, first);
    }
  }
  const T* Images(const void* all, int first) const {
    return static_cast<const T*>(all) + first * shape_.in_elements();
  }
  int64_t OutAt(int first) const { return first * shape_.out_pixels() * shape_.filters; }
  static int Rows(const ConvShape& part) {
    return static_cast<int>(part.batch * part.out_pixels());
  }
  Matrix Columns(const ConvShape& part, const void* data) const {
    return {.data = data,
            .type = type_,
            .row_stride = part.patch(),
            .batch_stride = int64_t{Rows(part)} * part.patch()};
  }
  Matrix Weights(const T* data) const {
    return {.data = data,
            .type = type_,
            .row_stride = shape_.patch(),
            .batch_stride = int64_t{shape_.group_filters()} * shape_.patch()};
  }
  Matrix OutGradient(const void* all, int first) const {
    return {.data = static_cast<const T*>(all) + OutAt(first),
            .type = type_,
            .row_stride = shape_.filters,
            .batch_stride = shape_.group_filters()};
  }

  Card& card_;
  const ConvShape shape_;
  const cudaDataType_t type_;
  bool direct_ = false;
  int images_ = 1;  // images per product
  size_t bytes_ = 0;
};

template <typename T>
class GemmForward : public ConvolutionForward, private GemmPass<T> {
 public:
  GemmForward(const ConvolutionRequest& request, const TypedWeights<T>& weights)
      : GemmPass<T>(request, sizeof(T)),
        weights_(weights),
        use_bias_(request.use_bias),
        relu_(request.relu) {}

  size_t scratch_bytes() const override { return this->bytes_; }

  void Run(const ForwardArgs& args) override {
    const T* const weights = weights_.Weights(args.weights);
    const ConvShape& s = this->shape_;
    this->ForImages([&](const ConvShape& part, int first) {
      const T* columns = this->Images(args.input, first);
      if (!this->direct_) {
        ImageToColumns(this->card_.target(), part, columns, static_cast<T*>(args.scratch));
        columns = static_cast<const T*>(args.scratch);
      }
      Matrix filters = this->Weights(weights);
      filters.transposed = true;
      Multiply(this->card_, {this->Rows(part), s.group_filters(), s.patch(), s.groups},
               this->Columns(part, columns), filters,
               {.data = static_cast<T*>(args.output) + this->OutAt(first),
                .type = this->type_,
                .row_stride = s.filters,
                .batch_stride = s.group_filters()});
    });
    AddBias(this->card_.target(), static_cast<T*>(args.output), use_bias_ ? args.bias : nullptr,
            relu_, s.batch * s.out_pixels(), s.filters);
  }

 private:
  const TypedWeights<T>& weights_;
  const bool use_bias_, relu_;
};

template <typename T>
class GemmWeightsGradient : public ConvolutionBackward, private GemmPass<T> {
 public:
  explicit GemmWeightsGradient(const ConvolutionRequest& request)
      : GemmPass<T>(request, sizeof(T)) {}

  size_t scratch_bytes() const override { return this->bytes_; }

  void Run(const BackwardArgs& args) override {
    const ConvShape& s = this->shape_;
    this->ForImages([&](const ConvShape& part, int first) {
      const T* columns = this->Images(args.input, first);
      if (!this->direct_) {
        ImageToColumns(this->card_.target(), part, columns, static_cast<T*>(args.scratch));
        columns = static_cast<const T*>(args.scratch);
      }
      Matrix dy = this->OutGradient(args.output_gradient, first);
      dy.transposed = true;
      Multiply(this->card_, {s.group_filters(), s.patch(), this->Rows(part), s.groups}, dy,
               this->Columns(part, columns),
               {.data = args.weights_gradient,
                .row_stride = s.patch(),
                .batch_stride = int64_t{s.group_filters()} * s.patch()},
               first > 0);
    });
  }
};

template <typename T>
class GemmInputGradient : public ConvolutionBackward, private GemmPass<T> {
 public:
  GemmInputGradient(const ConvolutionRequest& request, const TypedWeights<T>& weights)
      : GemmPass<T>(request, sizeof(float)), weights_(weights), after_relu_(request.after_relu) {}

  size_t scratch_bytes() const override { return this->bytes_; }

  void Run(const BackwardArgs& args) override {
    const ConvShape& s = this->shape_;
    const Matrix weights = this->Weights(weights_.Weights(args.weights));
    const auto* const relu = after_relu_ ? static_cast<const T*>(args.input) : nullptr;
    auto* const to = static_cast<T*>(args.input_gradient);
    if (this->direct_) {
      Multiply(this->card_, {this->Rows(s), s.in_channels, s.filters},
               this->OutGradient(args.output_gradient, 0), weights,
               {.data = to, .type = this->type_, .row_stride = s.in_channels});
      if (after_relu_) MaskByRelu(this->card_.target(), to, relu, s.batch * s.in_elements());
      return;
    }
    auto* const columns = static_cast<float*>(args.scratch);
    this->ForImages([&](const ConvShape& part, int first) {
      Multiply(this->card_, {this->Rows(part), s.patch(), s.group_filters(), s.groups},
               this->OutGradient(args.output_gradient, first), weights,
               {.data = columns,
                .row_stride = s.patch(),
                .batch_stride = int64_t{this->Rows(part)} * s.patch()});
      const int64_t at = first * s.in_elements();
      ColumnsToImage(this->card_.target(), part, columns, relu == nullptr ? nullptr : relu + at,
                     to + at);
    });
  }

 private:
  const TypedWeights<T>& weights_;
  const bool after_relu_;
};

}  // namespace

template <typename T>
std::unique_ptr<ConvolutionForward> MakeGemmForward(const ConvolutionRequest& request,
                                                    const TypedWeights<T>& weights) {
  return std::make_unique<GemmForward<T>>(request, weights);
}
template <typename T>
std::unique_ptr<ConvolutionBackward> MakeGemmInputGradient(const ConvolutionRequest& request,
                                                           const TypedWeights<T>& weights) {
  return std::make_unique<GemmInputGradient<T>>(request, weights);
}
template <typename T>
std::unique_ptr<ConvolutionBackward> MakeGemmWeightsGradient(const ConvolutionRequest& request) {
  return std::make_unique<GemmWeightsGradient<T>>(request);
}

MUSTER_INSTANTIATE_CONVOLUTIONS(Gemm)

}  // namespace muster::cuda
