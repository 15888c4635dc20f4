#include "worker/trainer/predict.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>

#include "common/config/data_format.h"
#include "proto/config.pb.h"
#include "worker/nn/completions.h"
#include "worker/nn/device_view.h"
#include "worker/nn/tower.h"
#include "worker/trainer/device_images.h"
#include "worker/trainer/locked_batches.h"

namespace muster {
namespace {

enum class Result { kLogits, kPredictions, kBoth };

class BlockRunner {
 public:
  BlockRunner(const config::Config& config, const Graph& graph, Backend& backend,
              std::span<const float> weights, const Dataset& set, Result result)
      : config_(config),
        backend_(backend),
        set_(set),
        block_size_(config.evaluation().batch()),
        tower_(graph, backend, config.run().seed(), {}, config.evaluation().flip()),
        weights_(backend, weights),
        results_copied_(backend.MakeEvent()) {
    const int64_t largest = std::min(block_size_, set.size());
    if (result != Result::kPredictions)
      logits_.resize(static_cast<size_t>(largest * graph.outputs()));
    if (result != Result::kLogits && !HasValues(config.data())) {
      predictions_.resize(static_cast<size_t>(largest));
    }
    tower_.Plan(largest, Mode::kInference);
    if (set.size() > block_size_ && set.size() % block_size_ != 0) {
      tower_.Plan(set.size() % block_size_, Mode::kInference);
    }
    tower_.Allocate();
    weights_.CopyIn(0, weights.size());
  }

  // Calls take(batch, sums) for each block until it returns false.
  template <typename Take>
  void Run(Range blocks, const Take& take) {
    const auto pipeline = LockBatches(
        backend_, MakeEvaluationPipeline(set_, config_.data(), block_size_, blocks,
                                         FromHost(backend_, &set_, config_.data(), false)));
    const DrainAtExit drain{backend_};  // before the pipeline's memory is freed
    bool wanted = true;
    for (int64_t block = blocks.begin; wanted && block < blocks.end; ++block) {
      const PreparedBatch& batch = pipeline->Next(config_.deadlines().progress_s());
      LossSums sums;
      tower_.Forward({.count = batch.count,
                      .images = batch.images,
                      .pixels = batch.pixels,
                      .scale = batch.scale,
                      .labels = batch.labels,
                      .sample_ids = batch.sample_ids,
                      .predictions = predictions_.empty() ? nullptr : predictions_.data(),
                      .logits = logits_.empty() ? nullptr : logits_.data()},
                     Mode::kInference, weights_.floats(), /*weights_version=*/0, nullptr, sums);
      backend_.Record(Queue::kCopyOut, *results_copied_);
      AwaitDevice(*results_copied_, config_.deadlines().progress_s());
      wanted = take(batch, sums);
    }
  }

  int64_t block_size() const { return block_size_; }
  // The results of the latest block.
  std::span<const float> logits() const { return logits_; }
  std::span<const int32_t> predictions() const { return predictions_; }

 private:
  const config::Config& config_;
  Backend& backend_;
  const Dataset& set_;
  const int64_t block_size_;
  Tower tower_;
  DeviceView weights_;
  const std::unique_ptr<Event> results_copied_;
  std::vector<float> logits_;
  std::vector<int32_t> predictions_;
};

}  // namespace

void PredictSamples(const config::Config& config, const Graph& graph, Backend& backend,
                    std::span<const float> weights, const Dataset& set,
                    std::vector<int64_t> samples, const OnPrediction& on_prediction) {
  if (samples.empty()) return;
  std::ranges::sort(samples);
  BlockRunner runner(config, graph, backend, weights, set, Result::kLogits);
  const auto outputs = static_cast<size_t>(graph.outputs());
  const int64_t size = runner.block_size();
  for (auto at = samples.begin(); at != samples.end();) {
    // Adjacent blocks share a pipeline, which prepares them ahead of their use.
    Range blocks{*at / size, *at / size + 1};
    auto end = at;
    for (; end != samples.end() && *end / size <= blocks.end; ++end) blocks.end = *end / size + 1;
    runner.Run(blocks, [&](const PreparedBatch& batch, const LossSums& /*sums*/) {
      const int64_t first = batch.index * size;
      for (; at != end && *at < first + size; ++at) {
        const auto place = static_cast<size_t>(*at - first);
        on_prediction(*at, batch.labels[place], runner.logits().subspan(place * outputs, outputs));
      }
      return true;
    });
  }
}

void EvaluateBlocks(const config::Config& config, const Graph& graph,
                    const std::function<std::unique_ptr<Backend>()>& make_backend,
                    std::span<const float> weights, const Dataset& set, bool with_logits,
                    const OnBlock& on_block) {
  const int64_t size = config.evaluation().batch(), threads = config.cluster().workers();
  std::mutex mutex;
  std::exception_ptr failure;  // the first failure, which ends the other threads too
  const auto compute = [&](Range blocks) {
    try {
      const std::unique_ptr<Backend> backend = make_backend();
      BlockRunner runner(config, graph, *backend, weights, set,
                         with_logits ? Result::kBoth : Result::kPredictions);
      runner.Run(blocks, [&](const PreparedBatch& batch, const LossSums& sums) {
        const std::lock_guard lock(mutex);
        if (failure) return false;
        const std::span<const int32_t> all = runner.predictions();
        on_block(batch, sums, all.first(std::min(all.size(), static_cast<size_t>(batch.count))),
                 runner.logits());
        return true;
      });
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> running;
    running.reserve(static_cast<size_t>(threads));
    for (int64_t i = 0; i < threads; ++i) {
      const Range blocks = EvenPart((set.size() + size - 1) / size, threads, i);
      if (!blocks.empty()) running.emplace_back(compute, blocks);
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace muster
