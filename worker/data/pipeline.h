// Prefetch threads that turn a dataset into ready batches, in order, ahead of their use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/plan/slices.h"
#include "common/plan/step_plan.h"
#include "proto/config.pb.h"
#include "worker/data/dataset.h"

namespace muster {

// One slice of one step (training) or one block of an evaluation, preprocessed.
// images: [count, height, width, channels] of the preprocessed shape, 64-byte aligned; null where
// somebody else makes them (ImagesBy).
struct PreparedBatch {
  int64_t step = 0;   // training: the step. Evaluation: 0
  int64_t index = 0;  // training: the slice. Evaluation: the block
  int64_t epoch = 0;
  int64_t count = 0;  // 0 for an empty slice
  const float* images = nullptr;
  const int32_t* labels = nullptr;
  const int64_t* sample_ids = nullptr;
  float share = 1;  // below 1: each image is mixed with the one before it (mixup.h)
};

// What turns stored images into a batch: these threads, or the device, which has the images. For
// the device, the threads only find out which samples a batch has (worker/nn/stored_images.h).
enum class ImagesBy { kHost, kDevice };

// Owner: the trainer. Next() is called from one thread; the batch it returns stays valid until
// the next call. The contents of a batch are a pure function of (seed, step, slice): they do not
// depend on threads, depth, or which worker asks.
class BatchPipeline {
 public:
  virtual ~BatchPipeline() = default;
  // Waits for the next batch. Rethrows what a prefetch thread threw. Throws Error(kDeadline) after
  // `deadline_s`.
  virtual const PreparedBatch& Next(double deadline_s) = 0;
  // What Next() will return, if it is ready by now; else null. Valid as long as after that Next().
  virtual const PreparedBatch* Peek() = 0;
};

// The shuffled orders of epochs, which several pipelines of one dataset and seed can share, so that
// none shuffles again what another has.
class EpochOrders;
std::shared_ptr<EpochOrders> MakeEpochOrders(const Dataset& dataset, uint64_t seed);

struct TrainPipelineOptions {
  StepPlan plan;
  std::vector<Range> slices;  // of this worker; batches come step by step, slice by slice
  int64_t first_step = 0;
  uint64_t seed = 0;
  config::Data data;                              // preprocess, prefetch_threads, prefetch_batches
  std::shared_ptr<EpochOrders> orders = nullptr;  // null: its own
  ImagesBy images = ImagesBy::kHost;
};
// `dataset` must outlive the pipeline. The destructor stops and joins the threads at once.
std::unique_ptr<BatchPipeline> MakeTrainPipeline(const Dataset& dataset,
                                                 const TrainPipelineOptions& options);

// One pass over the blocks [blocks.begin, blocks.end) of a set, each of `block_size`
// samples (the last one of the set may be smaller).
std::unique_ptr<BatchPipeline> MakeEvaluationPipeline(const Dataset& dataset,
                                                      const config::Data& data, int64_t block_size,
                                                      Range blocks,
                                                      ImagesBy images = ImagesBy::kHost);

// The memory of a pipeline of so many batches, each of up to `samples` samples of this shape.
size_t PrefetchBytes(int64_t batches, int64_t samples, const Shape& shape, int prefetch_batches,
                     ImagesBy images);

// The order of the `size` samples of one epoch: a Philox-keyed permutation.
std::vector<int64_t> EpochOrder(int64_t size, uint64_t seed, int64_t epoch);

}  // namespace muster
