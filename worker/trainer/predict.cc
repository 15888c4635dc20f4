#include "worker/trainer/predict.h"

#include <algorithm>

#include "proto/config.pb.h"
#include "worker/data/pipeline.h"
#include "worker/nn/completions.h"
#include "worker/nn/device_view.h"
#include "worker/nn/tower.h"

namespace muster {
namespace {

class Predictor {
 public:
  Predictor(const config::Config& config, const Graph& graph, Backend& backend,
            std::span<const float> weights, const Dataset& set)
      : config_(config),
        backend_(backend),
        set_(set),
        block_size_(config.evaluation().batch()),
        outputs_(static_cast<size_t>(graph.outputs())),
        tower_(graph, backend, config.run().seed()),
        weights_(backend, weights),
        results_copied_(backend.MakeEvent()),
        logits_(static_cast<size_t>(std::min(block_size_, set.size())) * outputs_) {
    tower_.Plan(std::min(block_size_, set.size()), Mode::kInference);
    if (set.size() > block_size_ && set.size() % block_size_ != 0) {
      tower_.Plan(set.size() % block_size_, Mode::kInference);
    }
    tower_.Allocate();
    weights_.CopyIn(0, weights.size());
  }

  // All samples of these blocks that are asked for.
  void Compute(Range blocks, std::span<const int64_t> samples, const OnPrediction& on_prediction) {
    const auto pipeline = MakeEvaluationPipeline(set_, config_.data(), block_size_, blocks);
    const DrainAtExit drain{backend_};  // before the pipeline's memory goes
    auto next = samples.begin();
    for (int64_t block = blocks.begin; block < blocks.end; ++block) {
      const PreparedBatch& batch = pipeline->Next(config_.deadlines().progress_s());
      LossSums sums;
      tower_.Forward({.count = batch.count,
                      .images = batch.images,
                      .labels = batch.labels,
                      .sample_ids = batch.sample_ids,
                      .logits = logits_.data()},
                     Mode::kInference, weights_.floats(), /*weights_version=*/0, nullptr, sums);
      backend_.Record(Queue::kCopyOut, *results_copied_);
      AwaitDevice(*results_copied_, config_.deadlines().progress_s());
      for (; next != samples.end() && *next < (block + 1) * block_size_; ++next) {
        const auto place = static_cast<size_t>(*next - block * block_size_);
        on_prediction(*next, batch.labels[place],
                      std::span<const float>(logits_).subspan(place * outputs_, outputs_));
      }
    }
  }

  int64_t block_size() const { return block_size_; }

 private:
  const config::Config& config_;
  Backend& backend_;
  const Dataset& set_;
  const int64_t block_size_;
  const size_t outputs_;
  Tower tower_;
  DeviceView weights_;
  const std::unique_ptr<Event> results_copied_;
  std::vector<float> logits_;
};

}  // namespace

void PredictSamples(const config::Config& config, const Graph& graph, Backend& backend,
                    std::span<const float> weights, const Dataset& set,
                    std::vector<int64_t> samples, const OnPrediction& on_prediction) {
  if (samples.empty()) return;
  std::ranges::sort(samples);
  Predictor predictor(config, graph, backend, weights, set);
  const int64_t size = predictor.block_size();
  for (auto at = samples.begin(); at != samples.end();) {
    // Blocks next to one another are prepared ahead of their use.
    Range blocks{*at / size, *at / size + 1};
    auto end = at;
    for (; end != samples.end() && *end / size <= blocks.end; ++end) blocks.end = *end / size + 1;
    predictor.Compute(blocks, {at, end}, on_prediction);
    at = end;
  }
}

}  // namespace muster
