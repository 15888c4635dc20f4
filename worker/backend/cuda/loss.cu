// Losses: a warp for each sample, then one block that adds up the samples. The CPU's loss_counts.h,
// softmax_cross_entropy.cc and mean_squared_error.cc have what is computed.
#include <cmath>

#include "worker/backend/cuda/elements.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.h"

namespace muster::cuda {
namespace {

constexpr int32_t kNoLabel = -1;  // a sample of weight zero

// What both losses say about one sample beside its loss. In every lane.
struct Counted {
  int prediction;  // the first largest
  float largest;
  bool finite, correct, correct_top5;
};

template <typename T>
__device__ Counted CountSample(const T* logits, int label, int classes) {
  float largest = ToFloat(logits[0]);
  int prediction = 0, bad = 0;
  for (int j = Lane(); j < classes; j += 32) {
    const float x = ToFloat(logits[j]);
    bad += isfinite(x) ? 0 : 1;
    if (x > largest) {
      largest = x;
      prediction = j;
    }
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, largest, distance);
    const int where = __shfl_xor_sync(kAllLanes, prediction, distance);
    if (other > largest || (other == largest && where < prediction)) {
      largest = other;
      prediction = where;
    }
  }
  Counted counted{prediction, largest, WarpSum(bad) == 0, false, false};
  const bool counts = counted.finite && label >= 0 && label < classes;
  const float own = counts ? ToFloat(logits[label]) : 0;
  int as_large = 0;
  for (int j = Lane(); j < classes; j += 32) as_large += ToFloat(logits[j]) >= own ? 1 : 0;
  as_large = WarpSum(as_large);
  counted.correct = counts && as_large == 1;  // itself
  counted.correct_top5 = counts && as_large <= 5;
  return counted;
}

__device__ inline void Report(const Counted& counted, int64_t n, double loss, SampleLoss* results,
                              int32_t* predictions) {
  if (Lane() != 0) return;
  results[n] = {loss, counted.correct ? 1 : 0, counted.correct_top5 ? 1 : 0};
  if (predictions != nullptr) predictions[n] = counted.prediction;
}

// A label that is no class makes the loss NaN, as a logit that is not finite does: never hidden.
__device__ inline bool IsBroken(const Counted& counted, int label, int classes) {
  return !counted.finite || label < kNoLabel || label >= classes;
}

template <typename T>
__global__ void MUSTER_FOUR_BLOCKS SoftmaxCrossEntropyKernel(
    const T* all_logits, const int32_t* labels, float smoothing, float* probabilities,
    SampleLoss* results, int32_t* predictions, int batch, int classes) {
  for (int64_t n = ThreadInGrid() / 32; n < batch; n += ThreadsOfGrid() / 32) {
    const T* const x = all_logits + n * classes;
    float* const probability = probabilities + n * classes;
    const int label = labels[n];
    const Counted counted = CountSample(x, label, classes);
    const bool broken = IsBroken(counted, label, classes);
    const float largest = broken ? NAN : counted.largest;
    double sum = 0, below = 0;  // below: Σ (x_j - largest)
    for (int j = Lane(); j < classes; j += 32) {
      const float e = expf(ToFloat(x[j]) - largest);
      probability[j] = e;
      sum += e;
      below += static_cast<double>(ToFloat(x[j])) - largest;
    }
    sum = WarpSum(sum);
    below = WarpSum(below);
    const auto scale = static_cast<float>(1 / sum);
    for (int j = Lane(); j < classes; j += 32) probability[j] *= scale;
    double loss = broken ? NAN : 0.0;
    if (!broken && label != kNoLabel) {
      loss = log(sum) - (1.0 - smoothing) * (static_cast<double>(ToFloat(x[label])) - largest) -
             (smoothing > 0 ? smoothing * below / classes : 0.0);
    }
    Report(counted, n, loss, results, predictions);
  }
}

template <typename T>
__global__ void SoftmaxCrossEntropyGradientKernel(const T* logits, const int32_t* labels,
                                                  float smoothing, const float* probabilities,
                                                  float scale, bool after_relu, T* gradient,
                                                  int classes, int64_t count) {
  const float everywhere = smoothing / static_cast<float>(classes);
  for (int64_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    const int label = labels[i / classes];
    const bool own = static_cast<int>(i % classes) == label;
    const float weight = label == kNoLabel ? 0.0f : scale;
    const float wanted = own ? 1.0f - smoothing + everywhere : everywhere;
    const bool passes = !after_relu || ToFloat(logits[i]) > 0;
    gradient[i] = FromFloat<T>(passes ? weight * (probabilities[i] - wanted) : 0.0f);
  }
}

// With one output the label has the bits of the value (Layer::is_of_values), and counts nothing.
__device__ inline float TargetOf(int label, int j, int classes) {
  if (classes == 1) return label == kNoLabel ? 0.0f : __int_as_float(label);
  return j == label ? 1.0f : 0.0f;
}

template <typename T>
__global__ void MeanSquaredErrorKernel(const T* all_logits, const int32_t* labels,
                                       SampleLoss* results, int32_t* predictions, int batch,
                                       int classes) {
  for (int64_t n = ThreadInGrid() / 32; n < batch; n += ThreadsOfGrid() / 32) {
    const T* const x = all_logits + n * classes;
    const int label = labels[n], own = classes == 1 ? kNoLabel : label;
    const Counted counted = CountSample(x, own, classes);
    double sum = 0;
    for (int j = Lane(); j < classes; j += 32) {
      const double difference = static_cast<double>(ToFloat(x[j])) - TargetOf(label, j, classes);
      sum += difference * difference;
    }
    sum = WarpSum(sum);
    double loss = label == kNoLabel ? 0.0 : sum / classes;
    if (IsBroken(counted, own, classes)) loss = NAN;
    Report(counted, n, loss, results, predictions);
  }
}

template <typename T>
__global__ void MeanSquaredErrorGradientKernel(const T* logits, const int32_t* labels, float scale,
                                               bool after_relu, T* gradient, int classes,
                                               int64_t count) {
  for (int64_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    const int label = labels[i / classes];
    const float weight = label == kNoLabel ? 0.0f : 2.0f * scale / static_cast<float>(classes);
    const float x = ToFloat(logits[i]);
    const float difference = x - TargetOf(label, static_cast<int>(i % classes), classes);
    gradient[i] = FromFloat<T>(after_relu && !(x > 0) ? 0.0f : weight * difference);
  }
}

// One block: each thread some samples in their order, then a tree.
__global__ void AddUpKernel(const SampleLoss* results, LossSums* sums, int batch) {
  __shared__ double loss[kBlock];
  __shared__ int correct[kBlock], correct_top5[kBlock];
  const int me = static_cast<int>(threadIdx.x);
  double my_loss = 0;
  int my_correct = 0, my_top5 = 0;
  for (int n = me; n < batch; n += kBlock) {
    my_loss += results[n].loss;
    my_correct += results[n].correct;
    my_top5 += results[n].correct_top5;
  }
  loss[me] = my_loss;
  correct[me] = my_correct;
  correct_top5[me] = my_top5;
  __syncthreads();
  for (int half = kBlock / 2; half > 0; half /= 2) {
    if (me < half) {
      loss[me] += loss[me + half];
      correct[me] += correct[me + half];
      correct_top5[me] += correct_top5[me + half];
    }
    __syncthreads();
  }
  if (me != 0) return;
  sums->loss = loss[0];
  sums->correct = correct[0];
  sums->correct_top5 = correct_top5[0];
}

}  // namespace

template <typename T>
void SoftmaxCrossEntropy(const Target& target, const T* logits, const int32_t* labels,
                         float smoothing, float* probabilities, SampleLoss* results,
                         int32_t* predictions, int batch, int classes) {
  LaunchWarps(target, batch, SoftmaxCrossEntropyKernel<T>, logits, labels, smoothing, probabilities,
              results, predictions, batch, classes);
}

template <typename T>
void SoftmaxCrossEntropyGradient(const Target& target, const T* logits, const int32_t* labels,
                                 float smoothing, const float* probabilities, float scale,
                                 bool after_relu, T* gradient, int batch, int classes) {
  const int64_t count = int64_t{batch} * classes;
  LaunchOver(target, count, SoftmaxCrossEntropyGradientKernel<T>, logits, labels, smoothing,
             probabilities, scale, after_relu, gradient, classes, count);
}

template <typename T>
void MeanSquaredError(const Target& target, const T* logits, const int32_t* labels,
                      SampleLoss* results, int32_t* predictions, int batch, int classes) {
  LaunchWarps(target, batch, MeanSquaredErrorKernel<T>, logits, labels, results, predictions, batch,
              classes);
}

template <typename T>
void MeanSquaredErrorGradient(const Target& target, const T* logits, const int32_t* labels,
                              float scale, bool after_relu, T* gradient, int batch, int classes) {
  const int64_t count = int64_t{batch} * classes;
  LaunchOver(target, count, MeanSquaredErrorGradientKernel<T>, logits, labels, scale, after_relu,
             gradient, classes, count);
}

void AddUpLosses(const Target& target, const SampleLoss* results, LossSums* sums, int batch) {
  Launch(AddUpKernel, dim3(1), dim3(kBlock), target.stream, results, sums, batch);
}

#define MUSTER_INSTANTIATE(T)                                                                      \
  template void SoftmaxCrossEntropy(const Target&, const T*, const int32_t*, float, float*,        \
                                    SampleLoss*, int32_t*, int, int);                              \
  template void SoftmaxCrossEntropyGradient(const Target&, const T*, const int32_t*, float,        \
                                            const float*, float, bool, T*, int, int);              \
  template void MeanSquaredError(const Target&, const T*, const int32_t*, SampleLoss*, int32_t*,   \
                                 int, int);                                                        \
  template void MeanSquaredErrorGradient(const Target&, const T*, const int32_t*, float, bool, T*, \
                                         int, int);
MUSTER_INSTANTIATE(float)
MUSTER_INSTANTIATE(Bf16)

}  // namespace muster::cuda
