// A worker's part of an evaluation.
#include <algorithm>

#include "common/base/error.h"
#include "common/trace/trace.h"
#include "worker/trainer/locked_batches.h"
#include "worker/trainer/sample_images.h"
#include "worker/trainer/trainer.h"

namespace muster {
namespace {

int64_t BlockCount(int64_t samples, int64_t block_size) {
  return (samples + block_size - 1) / block_size;
}

}  // namespace

void Trainer::Evaluate(const Order& order) {
  trace::AtStep(order.version);
  const trace::Span span("evaluate");
  const Dataset* const set = SetOf(order);
  MUSTER_CHECK(set != nullptr && order.blocks.end <= BlockCount(set->size(), order.block_size));
  const auto blocks =
      LockBatches(backend_, MakeEvaluationPipeline(*set, config_.data(), order.block_size,
                                                   order.blocks, images_->by(order.set)));
  tower_.UseImages(Mode::kInference, images_->of(order.set));
  const DrainAtExit drain{backend_};  // before the pipeline's memory is freed
  work_ = {.order = order};
  const bool predicts = order.predictions || order.images > 0;
  work_.predictions.resize(predicts ? static_cast<size_t>(order.block_size) : size_t{0});
  if (order.average && order.blocks.empty()) follower_.AwaitAll(order, Client::Of::kAverage);
  bool wanted = true;
  for (int64_t block = order.blocks.begin; wanted && block < order.blocks.end; ++block) {
    wanted = EvaluateBlock(blocks->Next(config_.deadlines().progress_s()), *blocks);
  }
  report_.SetDeviceMemory(backend_.memory_use().held);
}

const Dataset* Trainer::SetOf(const Order& order) const {
  return order.set == wire::VALIDATION ? data_.validation.get() : data_.test.get();
}

bool Trainer::EvaluateBlock(const PreparedBatch& batch, BatchPipeline& blocks) {
  const Order& order = work_.order;
  // A value that no version uses, so that layouts derived from W(version) are not reused for its
  // average.
  const int64_t contents = order.average ? -1 - order.version : order.version;
  const auto pass = [&] {
    if (order.average) {
      follower_.AwaitAll(order, Client::Of::kAverage);
      weights_.Use(client_.Average());  // its address is fixed after the first chunk
      for (size_t c = 0; c < client_.chunks().size(); ++c) weights_.Bring(c, contents);
    } else {
      weights_.Use(client_.Weights(order.version));
    }
    LossSums& sums = work_.sums.emplace_back();
    TowerInput input = InputOf(batch);
    input.predictions = work_.predictions.empty() ? nullptr : work_.predictions.data();
    tower_.Forward(
        input, Mode::kInference, weights_.floats(), contents,
        [this](int layer) {
          if (!work_.order.average) AwaitLayer(layer);
        },
        sums);
    backend_.Record(Queue::kCopyOut, *results_copied_);
    StageNext(blocks, Mode::kInference);
    AwaitDevice(*results_copied_, config_.deadlines().progress_s());
    const bool wanted = ReportBlock(batch, sums);
    work_.sums.clear();
    return wanted;
  };
  return follower_.Repeat(pass, [&] {
    backend_.Drain();
    work_.sums.clear();
  });
}

bool Trainer::ReportBlock(const PreparedBatch& batch, const LossSums& sums) {
  wire::EvaluatedBlock result;
  result.set_version(work_.order.version);
  result.set_set(work_.order.set);
  result.set_block(static_cast<uint32_t>(batch.index));
  result.set_samples(batch.count);
  result.set_loss(sums.loss);
  result.set_correct(sums.correct);
  for (const double sum : sums.metrics) result.add_metric(sum);
  if (work_.order.predictions) {
    const auto count = static_cast<size_t>(batch.count);
    for (const int32_t label : std::span(batch.labels, count)) {
      result.add_label(static_cast<uint32_t>(label));
    }
    for (const int32_t predicted : std::span(work_.predictions).first(count)) {
      result.add_predicted(static_cast<uint32_t>(predicted));
    }
  }
  if (work_.order.images > 0) {
    AddSampleImages(*SetOf(work_.order), work_.order.images, work_.order.block_size,
                    std::span(work_.predictions).first(static_cast<size_t>(batch.count)), result);
  }
  return client_.ReportEvaluated(result);
}

}  // namespace muster
