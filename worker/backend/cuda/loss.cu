// Losses. One warp computes the loss of each sample, then one block adds the samples. The formulas
// are in label_loss.h and the loss files of worker/backend/cpu.
#include <cmath>

#include "worker/backend/cuda/elements.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.h"

namespace muster::cuda {
namespace {

// The results for one sample that do not depend on the kind of loss. Every lane has the same
// results.
struct Counted {
  int prediction;  // the first of the largest logits
  float largest;
  bool finite;
  int rank;  // as in LossSums::Add
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
  const bool finite = WarpSum(bad) == 0, counts = finite && label >= 0 && label < classes;
  const float own = counts ? ToFloat(logits[label]) : 0;
  int as_large = 0;
  for (int j = Lane(); j < classes; j += 32) as_large += ToFloat(logits[j]) >= own ? 1 : 0;
  as_large = WarpSum(as_large);
  return {prediction, largest, finite, counts ? as_large : 0};
}

// Like CountSample, for a single logit x of class 1. Uses the logits 0 and x.
template <typename T>
__device__ Counted CountAgainstZero(const T* logit, int label) {
  const float x = ToFloat(*logit);
  const bool finite = isfinite(x), counts = finite && (label == 0 || label == 1);
  return {x > 0 ? 1 : 0, fmaxf(x, 0.0f), finite, counts ? 2 - (label == 1 ? x > 0 : x < 0) : 0};
}

// An invalid label makes the loss NaN, like a non-finite logit, so that it is noticed.
__device__ inline bool IsBroken(const Counted& counted, int label, int classes) {
  return !counted.finite || label < kNoLabel || label >= classes;
}

// These functions return the loss of one sample in all lanes of a warp. `own` is the index of its
// label's logit, or negative if there is none. Softmax saves a probability for each logit; its
// results are non-finite if `largest` is.
template <typename T>
__device__ double Loss(const SoftmaxCrossEntropySpec& spec, const T* x, int own, float largest,
                       int outputs, float* probability) {
  double sum = 0, below = 0;  // below: Σ (x_j - largest)
  for (int j = Lane(); j < outputs; j += 32) {
    const float e = expf(ToFloat(x[j]) - largest);
    probability[j] = e;
    sum += e;
    below += static_cast<double>(ToFloat(x[j])) - largest;
  }
  sum = WarpSum(sum);
  below = WarpSum(below);
  const auto scale = static_cast<float>(1 / sum);
  for (int j = Lane(); j < outputs; j += 32) probability[j] *= scale;
  if (own < 0) return 0;
  const float smoothing = spec.label_smoothing;
  return log(sum) - (1.0 - smoothing) * (static_cast<double>(ToFloat(x[own])) - largest) -
         (smoothing > 0 ? smoothing * below / outputs : 0.0);
}
template <typename T>
__device__ double Loss(const MeanSquaredErrorSpec&, const T* x, int own, float, int outputs,
                       float*) {
  double sum = 0;
  for (int j = Lane(); j < outputs; j += 32) {
    const double difference = static_cast<double>(ToFloat(x[j])) - (j == own ? 1 : 0);
    sum += difference * difference;
  }
  return WarpSum(sum) / outputs;
}
template <typename T>
__device__ double Loss(const SigmoidCrossEntropySpec&, const T* logits, int own, float, int outputs,
                       float*) {
  double sum = 0;
  for (int j = Lane(); j < outputs; j += 32) {
    const double x = ToFloat(logits[j]);
    sum += fmax(x, 0.0) + log1p(exp(-fabs(x))) - (j == own ? x : 0.0);
  }
  return WarpSum(sum) / outputs;
}

// d loss / d x_j is Factor times Slope. `probability` is softmax's saved value for this logit.
__device__ inline float Slope(const SoftmaxCrossEntropySpec& spec, float, const float* probability,
                              bool own, int outputs) {
  const float everywhere = spec.label_smoothing / static_cast<float>(outputs);
  return *probability - (own ? 1.0f - spec.label_smoothing + everywhere : everywhere);
}
__device__ inline float Slope(const MeanSquaredErrorSpec&, float x, const float*, bool own, int) {
  return x - (own ? 1.0f : 0.0f);
}
__device__ inline float Slope(const SigmoidCrossEntropySpec&, float x, const float*, bool own,
                              int) {
  return 1.0f / (1.0f + expf(-x)) - (own ? 1.0f : 0.0f);
}
__device__ inline float Factor(const SoftmaxCrossEntropySpec&, float scale, int) { return scale; }
__device__ inline float Factor(const MeanSquaredErrorSpec&, float scale, int outputs) {
  return 2.0f * scale / static_cast<float>(outputs);
}
__device__ inline float Factor(const SigmoidCrossEntropySpec&, float scale, int outputs) {
  return scale / static_cast<float>(outputs);
}

template <typename T, typename Spec>
__global__ void MUSTER_FOUR_BLOCKS SampleLossKernel(Spec spec, LossArgs args, LossBatch batch,
                                                    int32_t* predictions) {
  const int outputs = batch.outputs, classes = outputs + batch.first_class;
  for (int64_t n = ThreadInGrid() / 32; n < batch.samples; n += ThreadsOfGrid() / 32) {
    const T* const x = static_cast<const T*>(args.logits) + n * outputs;
    const int label = args.labels[n];
    const Counted counted =
        batch.first_class == 0 ? CountSample(x, label, outputs) : CountAgainstZero(x, label);
    const bool broken = IsBroken(counted, label, classes);
    double loss = 0;
    for (int part = 0; part < args.parts(); ++part) {
      const WeightedLabel of = LabelOf(args, batch.samples, classes, n, part);
      loss +=
          of.weight * Loss(spec, x, of.label - batch.first_class, broken ? NAN : counted.largest,
                           outputs, batch.probabilities + n * outputs);
    }
    if (Lane() == 0) {
      batch.results[n] = {broken ? NAN : loss, counted.rank};
      if (predictions != nullptr) predictions[n] = counted.prediction;
    }
  }
}

template <typename T, typename Spec>
__global__ void LossGradientKernel(Spec spec, LossArgs args, LossBatch batch, float scale,
                                   bool after_relu, T* gradient, uint32_t count) {
  const int outputs = batch.outputs, classes = outputs + batch.first_class;
  const float factor = Factor(spec, scale, outputs);
  for (uint32_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    const float x = ToFloat(static_cast<const T*>(args.logits)[i]);
    const uint32_t sample = i / static_cast<uint32_t>(outputs);
    const auto output = static_cast<int>(i - sample * static_cast<uint32_t>(outputs));
    float sum = 0;
    for (int part = 0; part < args.parts(); ++part) {
      const WeightedLabel of = LabelOf(args, batch.samples, classes, sample, part);
      const bool own = output + batch.first_class == of.label;
      const float slope =
          factor * of.weight * Slope(spec, x, batch.probabilities + i, own, outputs);
      sum = part == 0 ? slope : sum + slope;
    }
    gradient[i] = FromFloat<T>(after_relu && !(x > 0) ? 0.0f : sum);
  }
}

// Returns NaN, not 0, if the logit is not finite.
template <typename T>
__device__ double ValueDifference(const LossArgs& args, int64_t n) {
  const double x = ToFloat(static_cast<const T*>(args.logits)[n]);
  return x - (args.labels[n] == kNoLabel ? x : __int_as_float(args.labels[n]));
}

template <typename T>
__global__ void ValueLossKernel(LossArgs args, SampleLoss* results, int32_t* predictions,
                                int64_t samples) {
  for (int64_t n = ThreadInGrid(); n < samples; n += ThreadsOfGrid()) {
    const double difference = ValueDifference<T>(args, n);
    results[n] = {difference * difference, 0};
    if (predictions != nullptr) predictions[n] = 0;
  }
}

template <typename T>
__global__ void ValueGradientKernel(LossArgs args, float scale, bool after_relu, T* gradient,
                                    int64_t samples) {
  for (int64_t n = ThreadInGrid(); n < samples; n += ThreadsOfGrid()) {
    const bool passes = !after_relu || ToFloat(static_cast<const T*>(args.logits)[n]) > 0;
    const auto difference = static_cast<float>(ValueDifference<T>(args, n));
    gradient[n] = FromFloat<T>(passes ? 2.0f * scale * difference : 0.0f);
  }
}

// Runs as one block: each thread adds some samples in order, then a tree adds the threads' sums.
__global__ void AddUpKernel(const SampleLoss* results, LossSums* sums, int batch) {
  __shared__ double shared[kBlock * sizeof(LossSums) / sizeof(double)];
  auto* const parts = reinterpret_cast<LossSums*>(shared);
  const int me = static_cast<int>(threadIdx.x);
  LossSums mine;
  for (int n = me; n < batch; n += kBlock) mine.Add(results[n].loss, results[n].rank);
  parts[me] = mine;
  __syncthreads();
  for (int half = kBlock / 2; half > 0; half /= 2) {
    if (me < half) parts[me].Add(parts[me + half]);
    __syncthreads();
  }
  if (me == 0) *sums = parts[0];
}

}  // namespace

template <typename T, typename Spec>
void SampleLosses(const Target& target, const Spec& spec, const LossArgs& args,
                  const LossBatch& batch, int32_t* predictions) {
  LaunchWarps(target, batch.samples, SampleLossKernel<T, Spec>, spec, args, batch, predictions);
}

template <typename T, typename Spec>
void LossGradient(const Target& target, const Spec& spec, const LossArgs& args,
                  const LossBatch& batch, float scale, bool after_relu, T* gradient) {
  const int64_t count = int64_t{batch.samples} * batch.outputs;
  LaunchOver(target, count, LossGradientKernel<T, Spec>, spec, args, batch, scale, after_relu,
             gradient, count);
}

template <typename T>
void ValueLosses(const Target& target, const LossArgs& args, SampleLoss* results,
                 int32_t* predictions, int samples) {
  LaunchOver(target, samples, ValueLossKernel<T>, args, results, predictions, int64_t{samples});
}

template <typename T>
void ValueGradient(const Target& target, const LossArgs& args, float scale, bool after_relu,
                   T* gradient, int samples) {
  LaunchOver(target, samples, ValueGradientKernel<T>, args, scale, after_relu, gradient,
             int64_t{samples});
}

void AddUpLosses(const Target& target, const SampleLoss* results, LossSums* sums, int batch) {
  Launch(AddUpKernel, dim3(1), dim3(kBlock), target.stream, results, sums, batch);
}

#define MUSTER_INSTANTIATE(T, Spec)                                                                \
  template void SampleLosses<T>(const Target&, const Spec&, const LossArgs&, const LossBatch&,     \
                                int32_t*);                                                         \
  template void LossGradient(const Target&, const Spec&, const LossArgs&, const LossBatch&, float, \
                             bool, T*);
#define MUSTER_INSTANTIATE_ALL(T)                \
  MUSTER_INSTANTIATE(T, SoftmaxCrossEntropySpec) \
  MUSTER_INSTANTIATE(T, MeanSquaredErrorSpec)    \
  MUSTER_INSTANTIATE(T, SigmoidCrossEntropySpec)
MUSTER_FOR_ELEMENTS(MUSTER_INSTANTIATE_ALL)

#define MUSTER_INSTANTIATE_VALUES(T)                                                        \
  template void ValueLosses<T>(const Target&, const LossArgs&, SampleLoss*, int32_t*, int); \
  template void ValueGradient(const Target&, const LossArgs&, float, bool, T*, int);
MUSTER_FOR_ELEMENTS(MUSTER_INSTANTIATE_VALUES)

}  // namespace muster::cuda
