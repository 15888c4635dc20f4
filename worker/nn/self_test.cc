#include "worker/nn/self_test.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "worker/nn/plan.h"

namespace muster {
namespace {

using Floats = std::vector<float>;

constexpr double kOpPatience = 120;  // seconds, for one op
constexpr int64_t kMostSamples = 8;  // computed by the reference
constexpr double kMostFlops = 2e10;  // of the reference in total: about a second
// A tensor of very small values is compared as if this were its largest value.
constexpr double kLeastScale = 0.1;

// Returns values in [-1, 1) that depend only on `place` and the index.
Floats RandomFloats(int64_t count, uint64_t place) {
  Floats floats(static_cast<size_t>(count));
  uint64_t state = place << 40;
  for (float& number : floats) {  // SplitMix64
    uint64_t bits = state += 0x9e3779b97f4a7c15;
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
    number = static_cast<float>((bits ^ bits >> 31) >> 40) * 0x1p-23f - 1;
  }
  return floats;
}

// The inputs of both backends, for the samples that the reference computes.
struct Given {
  Floats input, output_gradient, weights, bias;
  std::vector<int32_t> labels;
};

// A result of one backend. Gradients of variables are for the reference's samples. The device's
// activation tensors appear twice: for the first samples and for the last ones.
struct Tensor {
  std::string name;
  Floats values;
};
using Made = std::vector<Tensor>;

class Bench {
 public:
  Bench(Backend& backend, int64_t samples, int64_t batch)
      : backend_(backend), samples_(samples), batch_(batch), event_(backend.MakeEvent()) {}

  void* Bytes(size_t bytes) {
    if (bytes == 0) return nullptr;
    buffers_.push_back(backend_.Allocate(bytes));
    backend_.Zero(buffers_.back()->data(), bytes);
    return buffers_.back()->data();
  }
  float* Variable(const Floats& values) {
    auto* const at = static_cast<float*>(Bytes(values.size() * sizeof(float)));
    if (at != nullptr) Upload(at, values.data(), values.size() * sizeof(float));
    return at;
  }
  int32_t* Labels(const std::vector<int32_t>& labels) {
    std::vector<int32_t> all(static_cast<size_t>(batch_));
    for (size_t i = 0; i < all.size(); ++i) all[i] = labels[i % labels.size()];
    auto* const at = static_cast<int32_t*>(Bytes(all.size() * sizeof(int32_t)));
    Upload(at, all.data(), all.size() * sizeof(int32_t));
    return at;
  }
  void* Activations(int64_t per_sample) {
    return Bytes(static_cast<size_t>(batch_ * per_sample) * BytesOf(backend_.activation_type()));
  }
  // Uploads the samples' values, repeated to fill the batch.
  void* Activations(const Floats& values) {
    const auto count = static_cast<int64_t>(values.size());
    void* const at = Activations(count / samples_);
    if (backend_.activation_type() == ElementType::kFloat32) {
      Upload(at, values.data(), values.size() * sizeof(float));
    } else {
      backend_.ToActivations(at, Variable(values), count);
    }
    const int64_t all = count / samples_ * batch_;
    for (int64_t done = count; done < all; done *= 2) {
      backend_.AddGradients(Element(at, done), at, nullptr, nullptr, std::min(done, all - done));
    }
    return at;
  }

  void Download(Made& made, const std::string& name, const float* from, size_t count,
                double divide = 1) {
    if (count == 0) return;
    Floats values(count);
    Download(values.data(), from, count * sizeof(float));
    for (float& value : values) value = static_cast<float>(value / divide);
    made.push_back({name, std::move(values)});
  }
  void Download(void* to, const void* from, size_t bytes) {
    Await(Queue::kCompute);
    CopyOut(to, from, bytes);
  }
  // Downloads the first samples and the last ones.
  void DownloadActivations(Made& made, const std::string& name, void* from, int64_t per_sample) {
    if (from == nullptr) return;
    Await(Queue::kCompute);
    made.push_back({name, Activations(from, 0, samples_ * per_sample)});
    if (batch_ == samples_) return;
    const int64_t last = (batch_ - samples_) * per_sample;
    made.push_back({name + " of the last samples", Activations(from, last, samples_ * per_sample)});
  }
  // The number of copies of each sample on the device.
  double copies() const { return static_cast<double>(batch_) / static_cast<double>(samples_); }

 private:
  void* Element(void* at, int64_t index) const {
    return static_cast<char*>(at) +
           static_cast<size_t>(index) * BytesOf(backend_.activation_type());
  }
  void Upload(void* to, const void* from, size_t bytes) {
    if (backend_.shares_host_memory()) {
      std::copy_n(static_cast<const char*>(from), bytes, static_cast<char*>(to));
      return;
    }
    Await(Queue::kCompute);  // kCompute cleared it
    backend_.CopyIn(to, from, bytes);
    Await(Queue::kCopyIn);
  }
  void CopyOut(void* to, const void* from, size_t bytes) {
    if (backend_.shares_host_memory()) {
      std::copy_n(static_cast<const char*>(from), bytes, static_cast<char*>(to));
      return;
    }
    backend_.CopyOut(to, from, bytes);
    Await(Queue::kCopyOut);
  }
  Floats Activations(void* all, int64_t begin, int64_t count) {
    Floats values(static_cast<size_t>(count));
    if (backend_.activation_type() == ElementType::kFloat32) {
      CopyOut(values.data(), Element(all, begin), values.size() * sizeof(float));
    } else {
      std::vector<uint16_t> halves(values.size());
      CopyOut(halves.data(), Element(all, begin), halves.size() * sizeof(uint16_t));
      FromHalves(backend_.activation_type(), halves, values.data());
    }
    return values;
  }
  void Await(Queue queue) {
    backend_.Record(queue, *event_);
    if (event_->Wait(kOpPatience)) return;
    throw Error(ExitCode::kDeadline, "the device did not finish within {:g} s", kOpPatience);
  }

  Backend& backend_;
  const int64_t samples_, batch_;
  const std::unique_ptr<Event> event_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
};

Made RunOp(Backend& backend, const Layer& given_layer, const OpOptions& options, const Given& given,
           int64_t samples) {
  Layer layer = given_layer;
  layer.frozen = false;  // frozen or not, the kernels are the same
  const std::unique_ptr<Op> op = backend.MakeOp(layer, options);
  Bench bench(backend, samples, options.batch);
  const DrainAtExit drain{backend};
  const int64_t in = layer.input_shape.elements(), out = layer.output_shape.elements();
  ForwardArgs forward;
  forward.input = bench.Activations(given.input);
  forward.inputs = {&forward.input, 1};
  forward.output = bench.Activations(out);
  forward.weights = bench.Variable(given.weights);
  forward.bias = bench.Variable(given.bias);
  forward.weights_version = 1;
  forward.state = bench.Bytes(op->state_bytes());
  forward.scratch = bench.Bytes(op->scratch_bytes());
  BackwardArgs backward;
  backward.input = forward.input;
  backward.output = forward.output;
  backward.output_gradient = bench.Activations(given.output_gradient);
  if (options.input_gradient) backward.input_gradient = bench.Activations(in);
  backward.input_gradients = {&backward.input_gradient, 1};
  backward.weights = forward.weights;
  backward.bias = forward.bias;
  backward.weights_version = 1;
  backward.weights_gradient = bench.Variable(Floats(given.weights.size()));
  backward.bias_gradient = bench.Variable(Floats(given.bias.size()));
  const bool is_norm = layer.scale >= 0;
  const size_t statistics = layer.running_mean >= 0 ? given.weights.size() : 0;
  backward.mean_statistic = bench.Variable(Floats(statistics));
  backward.variance_statistic = bench.Variable(Floats(statistics));
  backward.statistic_weight = 1;
  backward.state = forward.state;
  backward.scratch = forward.scratch;
  op->Forward(forward);
  Made made;
  bench.DownloadActivations(made, "the output", forward.output, out);
  if (!options.input_gradient && !layer.has_variables()) return made;
  op->Backward(backward);
  bench.Download(made, is_norm ? "the gradient of the scale" : "the gradient of the weights",
                 backward.weights_gradient, given.weights.size(), bench.copies());
  bench.Download(made, is_norm ? "the gradient of the shift" : "the gradient of the bias",
                 backward.bias_gradient, given.bias.size(), bench.copies());
  bench.Download(made, "the mean", backward.mean_statistic, statistics);
  bench.DownloadActivations(made, "the gradient of the input", backward.input_gradient, in);
  return made;
}

Made RunLoss(Backend& backend, const Layer& layer, const OpOptions& options, const Given& given,
             int64_t samples) {
  const std::unique_ptr<LossOp> op = backend.MakeLoss(layer, options);
  Bench bench(backend, samples, options.batch);
  const DrainAtExit drain{backend};
  const int64_t in = layer.input_shape.elements();
  const LossArgs args{.logits = bench.Activations(given.input),
                      .labels = bench.Labels(given.labels),
                      .state = bench.Bytes(op->state_bytes())};
  void* const gradient = bench.Activations(in);
  void* const sums_there = bench.Bytes(sizeof(LossSums));
  op->Forward(args, static_cast<LossSums*>(sums_there), nullptr);
  op->Backward(args, 1, gradient);
  LossSums sums;
  bench.Download(&sums, sums_there, sizeof sums);
  const auto of_samples = [&](auto sum) {
    return static_cast<float>(static_cast<double>(sum) / bench.copies());
  };
  std::vector<float> counts{of_samples(sums.correct)};
  for (const double sum : sums.metrics) counts.push_back(of_samples(sum));
  Made made{{"the sum of the losses", {of_samples(sums.loss)}},
            {"the number of correct predictions", counts}};
  bench.DownloadActivations(made, "the gradient of the logits", gradient, in);
  return made;
}

// Returns true for products, convolutions, and layers that sum over a batch, an image or channels.
bool IsTested(const Layer& layer) {
  if (const auto* pool = std::get_if<PoolSpec>(&layer.spec)) {
    return pool->kind == PoolSpec::Kind::kAverage;
  }
  return layer.has_variables() || std::holds_alternative<GlobalAvgPoolSpec>(layer.spec) ||
         std::holds_alternative<LrnSpec>(layer.spec) || layer.traits().is_loss;
}

struct Tested {
  const Layer& layer;
  OpOptions options;
};

// Makes the ops as a tower does in training, so that the convolutions use the job's algorithms.
std::vector<Tested> WhatToTest(const Graph& graph) {
  Plan plan = MakePlan(graph, Mode::kTraining);
  plan.steps.push_back(plan.loss);
  std::vector<Tested> all;
  std::set<std::string> known;
  for (const PlanStep& step : plan.steps) {
    const Layer& layer = graph.layers()[static_cast<size_t>(step.layer)];
    if (!IsTested(layer)) continue;
    OpOptions options{.input_gradient = plan.NeedsGradient(step.inputs[0]),
                      .input_is_relu = plan.InputIsRelu(step)};
    // Omits a batch norm's activation, because its backward pass depends on whether rounded sums
    // are above zero.
    if (layer.traits().fuses == LayerTraits::Fuses::kRelu) options.activation = step.activation;
    const std::string key =
        fmt::format("{} {} {} {} {} {} {}", layer.kind, NumbersOf(layer.spec),
                    layer.input_shape.ToString(), layer.output_shape.ToString(),
                    Name(options.activation), options.input_gradient, options.input_is_relu);
    if (known.insert(key).second) all.push_back({layer, options});
  }
  return all;
}

Given MakeGiven(const Tested& tested, const Graph& graph, int64_t samples, ElementType type) {
  const Layer& layer = tested.layer;
  const auto count = [&](int variable) {
    return variable < 0 ? 0 : graph.variables()[static_cast<size_t>(variable)].count;
  };
  const bool is_norm = layer.scale >= 0;
  const auto weights = static_cast<int64_t>(count(is_norm ? layer.scale : layer.weights)),
             bias = static_cast<int64_t>(count(is_norm ? layer.shift : layer.bias));
  Given given{.input = RandomFloats(samples * layer.input_shape.elements(), 1),
              .output_gradient = RandomFloats(samples * layer.output_shape.elements(), 2),
              .weights = RandomFloats(weights, 3),
              .bias = RandomFloats(bias, 4),
              .labels = {}};
  // Rounding of the inputs to 16 bits must not count as an error of the device.
  for (Floats* floats : {&given.input, &given.output_gradient, &given.weights}) {
    RoundTo(type, *floats);
  }
  if (tested.options.input_is_relu) {
    for (float& number : given.input) number = std::max(number, 0.0f);
  }
  for (int64_t i = 0; i < samples; ++i) {
    given.labels.push_back(static_cast<int32_t>(i % layer.input_shape.elements()));
  }
  return given;
}

// Describes the first difference. Returns "" if there is none.
std::string Compare(const Made& device, const Made& reference, double tolerance) {
  for (const Tensor& got : device) {
    const auto expected = std::ranges::find_if(
        reference, [&](const Tensor& tensor) { return got.name.starts_with(tensor.name); });
    MUSTER_CHECK(expected != reference.end() && expected->values.size() == got.values.size());
    double scale = kLeastScale;
    for (const float value : expected->values) {
      scale = std::max(scale, static_cast<double>(std::abs(value)));
    }
    for (size_t i = 0; i < got.values.size(); ++i) {
      const double difference = std::abs(static_cast<double>(got.values[i]) - expected->values[i]);
      if (difference <= tolerance * scale) continue;  // false for NaN
      return fmt::format("{}: value {} is {:g}, expected {:g} as on the CPU, tolerance {:.2g}",
                         got.name, i, got.values[i], expected->values[i], tolerance * scale);
    }
  }
  return "";
}

// Returns the largest divisor of the batch that is within the limits.
int64_t SamplesFor(const std::vector<Tested>& all, int64_t batch) {
  double flops = 0;
  for (const Tested& tested : all) flops += 3 * tested.layer.forward_flops;
  const auto most = static_cast<int64_t>(
      std::clamp(kMostFlops / std::max(flops, 1.0), 1.0, static_cast<double>(kMostSamples)));
  int64_t samples = std::min(most, batch);
  while (batch % samples != 0) --samples;
  return samples;
}

}  // namespace

SelfTestResult RunSelfTest(const Graph& graph, int64_t batch, double tolerance, Backend& device,
                           Backend& reference) {
  const std::vector<Tested> all = WhatToTest(graph);
  const int64_t samples = SamplesFor(all, batch);
  SelfTestResult result;
  for (const Tested& tested : all) {
    const Layer& layer = tested.layer;
    const std::string name =
        fmt::format("layer {} ({} {} -> {}, batch {})", layer.name, layer.kind,
                    layer.input_shape.ToString(), layer.output_shape.ToString(), batch);
    const auto run = layer.traits().is_loss ? RunLoss : RunOp;
    const Given given = MakeGiven(tested, graph, samples, device.activation_type());
    OpOptions options = tested.options;
    Made got;
    try {
      device.Enter();
      options.batch = batch;
      got = run(device, layer, options, given, samples);
    } catch (const OutOfDeviceMemory&) {
      throw;
    } catch (const Error& error) {
      result.failure = fmt::format("error in {}: {}", name, error.what());
      return result;
    }
    reference.Enter();
    options.batch = samples;
    const Made expected = run(reference, layer, options, given, samples);
    ++result.operations;
    if (const std::string why = Compare(got, expected, tolerance); !why.empty()) {
      result.failure = fmt::format("wrong result of {}, {}", name, why);
      return result;
    }
  }
  device.Enter();
  return result;
}

}  // namespace muster
