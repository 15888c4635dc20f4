#include "worker/data/pipeline.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/config/data_format.h"
#include "common/trace/trace.h"
#include "worker/data/epoch_order.h"
#include "worker/data/mixup.h"
#include "worker/data/prefetch_ring.h"

namespace muster {
namespace {

ImageTarget ImageAt(const BatchBuffer& buffer, int64_t first) {
  if (buffer.pixels != nullptr) return buffer.pixels + first;
  return buffer.images + first;
}

const PixelScale* ScaleFor(ImagesBy images, const SampleLoader& loader) {
  return images == ImagesBy::kHostPixels ? loader.pixel_scale() : nullptr;
}

// Batch number n is slice n mod K of step first_step + n / K, where K is the number of this
// worker's slices.
class TrainSource final : public BatchSource {
 public:
  TrainSource(const Dataset& dataset, const TrainPipelineOptions& options)
      : dataset_(dataset),
        options_(options),
        loader_(dataset.MakeLoader(options.data)),
        orders_(options.orders != nullptr ? options.orders
                                          : MakeEpochOrders(dataset, options.seed)) {
    const StepPlan& plan = options_.plan;
    MUSTER_CHECK(plan.train_samples == dataset.size() && plan.global_batch > 0);
    MUSTER_CHECK(mixup_alpha() == 0 || options_.images == ImagesBy::kHost);
    MUSTER_CHECK(0 <= options_.first_step && options_.first_step <= plan.total_steps);
    for (const Range& range : options_.slices) {
      MUSTER_CHECK(0 <= range.begin && range.begin <= range.end && range.end <= plan.slices);
      for (int64_t slice = range.begin; slice < range.end; ++slice) slices_.push_back(slice);
    }
  }

  int64_t batches() const override {
    return (options_.plan.total_steps - options_.first_step) * each_step();
  }
  int64_t max_samples() const override {
    const int64_t batch = std::min(options_.plan.global_batch, options_.plan.train_samples);
    return (batch + options_.plan.slices - 1) / options_.plan.slices;
  }
  Shape shape() const override { return loader_->shape(); }
  ImagesBy images() const override { return options_.images; }

  PreparedBatch Describe(int64_t number) const override {
    PreparedBatch batch;
    batch.step = options_.first_step + number / each_step();
    batch.index = slices_[static_cast<size_t>(number % each_step())];
    const Batch step = options_.plan.At(batch.step);
    batch.epoch = step.epoch;
    batch.count = options_.plan.Slice(step, batch.index).size();
    batch.scale = ScaleFor(options_.images, *loader_);
    if (mixup_alpha() > 0 && batch.count > 1) {
      batch.share = MixupShare(mixup_alpha(), options_.seed, batch.step, batch.index);
    }
    return batch;
  }

  std::string Name(int64_t number) const override {
    const PreparedBatch batch = Describe(number);
    return fmt::format("step {}, slice {}", batch.step, batch.index);
  }

  void Fill(int64_t number, Range samples, const BatchBuffer& buffer,
            std::stop_token stop) override {
    const PreparedBatch batch = Describe(number);
    const trace::Span span("load", {},
                           {.step = batch.step, .slice = static_cast<int32_t>(batch.index)});
    const Range places = options_.plan.Slice(options_.plan.At(batch.step), batch.index);
    const std::shared_ptr<const SampleOrder> order = orders_->Of(batch.epoch);
    const std::unique_ptr<LoaderScratch> scratch = loader_->MakeScratch();
    for (int64_t i = samples.begin; i < samples.end && !stop.stop_requested(); ++i) {
      const int64_t sample = (*order)[static_cast<size_t>(places.begin + i)];
      buffer.sample_ids[i] = sample;
      buffer.labels[i] = dataset_.Label(sample);
      if (options_.images == ImagesBy::kDevice) continue;
      loader_->Train(sample, options_.seed, batch.epoch, *scratch,
                     ImageAt(buffer, i * loader_->shape().elements()));
    }
  }

  void Finish(int64_t number, const BatchBuffer& buffer) override {
    const PreparedBatch batch = Describe(number);
    if (batch.share == 1) return;
    MixImages(batch.share, batch.count, loader_->shape().elements(), buffer.images);
  }

 private:
  const Dataset& dataset_;
  const TrainPipelineOptions options_;
  const std::unique_ptr<SampleLoader> loader_;
  const std::shared_ptr<EpochOrders> orders_;
  std::vector<int64_t> slices_;  // the slices of each step

  int64_t each_step() const { return static_cast<int64_t>(slices_.size()); }
  double mixup_alpha() const { return MixupAlpha(options_.data); }
};

class EvaluationSource final : public BatchSource {
 public:
  EvaluationSource(const Dataset& dataset, const config::Data& data, int64_t block_size,
                   Range blocks, ImagesBy images)
      : dataset_(dataset),
        loader_(dataset.MakeLoader(data)),
        block_size_(block_size),
        blocks_(blocks),
        images_(images) {
    MUSTER_CHECK(block_size > 0 && 0 <= blocks.begin && blocks.begin <= blocks.end);
    MUSTER_CHECK(blocks.end <= (dataset.size() + block_size - 1) / block_size);
  }

  int64_t batches() const override { return blocks_.size(); }
  int64_t max_samples() const override { return std::min(block_size_, dataset_.size()); }
  Shape shape() const override { return loader_->shape(); }
  ImagesBy images() const override { return images_; }

  PreparedBatch Describe(int64_t number) const override {
    PreparedBatch batch;
    batch.index = blocks_.begin + number;
    batch.count = std::min(block_size_, dataset_.size() - batch.index * block_size_);
    batch.scale = ScaleFor(images_, *loader_);
    return batch;
  }

  std::string Name(int64_t number) const override {
    return fmt::format("block {} of an evaluation", blocks_.begin + number);
  }

  void Fill(int64_t number, Range samples, const BatchBuffer& buffer,
            std::stop_token stop) override {
    const trace::Span span("load", "evaluation block");
    const std::unique_ptr<LoaderScratch> scratch = loader_->MakeScratch();
    for (int64_t i = samples.begin; i < samples.end && !stop.stop_requested(); ++i) {
      const int64_t sample = (blocks_.begin + number) * block_size_ + i;
      buffer.sample_ids[i] = sample;
      buffer.labels[i] = dataset_.Label(sample);
      if (images_ == ImagesBy::kDevice) continue;
      loader_->Evaluate(sample, *scratch, ImageAt(buffer, i * loader_->shape().elements()));
    }
  }

 private:
  const Dataset& dataset_;
  const std::unique_ptr<SampleLoader> loader_;
  const int64_t block_size_;
  const Range blocks_;
  const ImagesBy images_;
};

std::unique_ptr<BatchPipeline> MakeRing(std::unique_ptr<BatchSource> source,
                                        const config::Data& data) {
  const bool chooses_only = source->images() == ImagesBy::kDevice;  // one thread is enough
  const int threads = chooses_only ? 1 : std::max(1, static_cast<int>(data.prefetch_threads()));
  return std::make_unique<PrefetchRing>(std::move(source), threads,
                                        static_cast<int>(data.prefetch_batches()));
}

}  // namespace

std::shared_ptr<EpochOrders> MakeEpochOrders(const Dataset& dataset, uint64_t seed) {
  return std::make_shared<EpochOrders>(dataset.size(), seed);
}

bool CanMakePixels(const Dataset& dataset, const config::Data& data, bool training) {
  const bool changes_floats =
      training && (MixupAlpha(data) > 0 || data.preprocess().erasing_probability() > 0);
  return !changes_floats && dataset.MakeLoader(data)->pixel_scale() != nullptr;
}

std::unique_ptr<BatchPipeline> MakeTrainPipeline(const Dataset& dataset,
                                                 const TrainPipelineOptions& options) {
  return MakeRing(std::make_unique<TrainSource>(dataset, options), options.data);
}

std::unique_ptr<BatchPipeline> MakeEvaluationPipeline(const Dataset& dataset,
                                                      const config::Data& data, int64_t block_size,
                                                      Range blocks, ImagesBy images) {
  return MakeRing(std::make_unique<EvaluationSource>(dataset, data, block_size, blocks, images),
                  data);
}

}  // namespace muster
