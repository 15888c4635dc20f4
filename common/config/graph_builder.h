// Turns the layers of a model, in order, into a Graph: infers shapes, places variables, counts
// FLOPs. Errors name the layer, the expected value and the actual value. Only BuildGraph uses this
// class.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/graph/graph.h"
#include "proto/config.pb.h"

namespace muster {

class GraphBuilder {
 public:
  explicit GraphBuilder(const Shape& input) : data_shape_(input) {}

  // Throws Error(kUsage).
  void Add(const config::Layer& layer);
  // Checks the whole graph. Call after the last layer has been added.
  void Finish() const;
  // Freezes the layers of Model.freeze. Call after Finish.
  void Freeze(const google::protobuf::RepeatedPtrField<std::string>& patterns);

  std::vector<Layer> layers;
  std::vector<Variable> variables;
  size_t arena_floats = 0;

 private:
  template <typename... Args>
  [[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ExitCode::kUsage, "layer \"{}\" ({}): {}", current_->name, current_->kind,
                fmt::format(format, std::forward<Args>(args)...));
  }

  void FindInputs(const config::Layer& layer);
  const std::string& NameOf(int layer) const;
  const Shape& OutputOf(int layer) const;

  // These also set the current layer's output shape, variables and FLOPs.
  LayerSpec Convert(const config::Layer& layer);
  LayerSpec Convert(const config::Conv2d& conv);
  LayerSpec Convert(const config::Dense& dense);
  LayerSpec Convert(const config::Pool& pool, PoolSpec::Kind kind);
  LayerSpec Convert(const config::ReflectPad& pad);
  LayerSpec Convert(const config::Lrn& lrn);
  LayerSpec Convert(const config::BatchNorm& norm);
  LayerSpec Convert(const config::GroupNorm& norm);
  LayerSpec ConvertAdd();
  LayerSpec ConvertConcat();
  // Checks that the input is one row per sample, as losses require.
  void PrepareLoss(double flops_per_output, int64_t least_outputs);
  // Refuses probabilities as the input of a loss that computes them from logits itself.
  void RefuseProbabilities(const char* function) const;

  struct Window {
    int64_t kernel_height, kernel_width, stride_height, stride_width, out_height, out_width;
    Pads pads;
  };
  template <typename M>
  Window PlaceWindow(const M& message, int64_t default_stride_height,
                     int64_t default_stride_width) const;
  std::pair<int64_t, int64_t> Pair(const google::protobuf::RepeatedField<uint32_t>& values,
                                   const char* key) const;
  // The number of inputs per output and of outputs per input, which initialisers need.
  struct Fans {
    int64_t in, out;
  };
  int AddVariable(const char* suffix, Variable::Kind kind, std::vector<int64_t> shape, Fans fans,
                  const config::Variable& settings, Initializer fallback);
  // The variables of a normalisation, with a number for each channel, and its FLOPs.
  template <typename M>
  void AddScaleAndShift(const M& norm);

  const Shape data_shape_;
  Layer* current_ = nullptr;
  std::map<std::string, int> by_name_;
  std::set<int> used_;
};

}  // namespace muster
