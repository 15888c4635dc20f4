// Threads that prepare the batches of a dataset in order, ahead of their use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/plan/slices.h"
#include "common/plan/step_plan.h"
#include "proto/config.pb.h"
#include "worker/data/dataset.h"

namespace muster {

// One slice of one step (training) or one block of an evaluation, preprocessed. images or pixels:
// [count, height, width, channels] of the preprocessed shape, 64-byte aligned; null unless ImagesBy
// names them.
struct PreparedBatch {
  int64_t step = 0;   // training: the step. Evaluation: 0
  int64_t index = 0;  // training: the slice. Evaluation: the block
  int64_t epoch = 0;
  int64_t count = 0;  // 0 for an empty slice
  const float* images = nullptr;
  const uint8_t* pixels = nullptr;
  const PixelScale* scale = nullptr;  // of the pixels; as long as the pipeline
  const int32_t* labels = nullptr;
  const int64_t* sample_ids = nullptr;
  float share = 1;  // below 1: each image is mixed with the one before it (mixup.h)
};

// The maker of the images of batches: these threads; these threads as bytes, which the device
// scales (a quarter of the memory and of the copy); or the device, which stores the set's images
// (worker/nn/stored_images.h). Then the threads only determine the samples of a batch. The bits are
// the same.
enum class ImagesBy { kHost, kHostPixels, kDevice };
// Whether these threads can make the set's batches as bytes.
bool CanMakePixels(const Dataset& dataset, const config::Data& data, bool training);

// Owned by the trainer. One thread calls Next(); the batch it returns stays valid until the next
// call. The contents of a batch are a pure function of (seed, step, slice): they do not depend on
// the threads, the depth or the worker.
class BatchPipeline {
 public:
  virtual ~BatchPipeline() = default;
  // Waits for the next batch. Rethrows exceptions of the prefetch threads. Throws Error(kDeadline)
  // after `deadline_s`.
  virtual const PreparedBatch& Next(double deadline_s) = 0;
  // The batch that Next() will return if it is ready, else null. Valid as long as that batch.
  virtual const PreparedBatch* Peek() = 0;
  // Where all batches are, as whole pages, so that a device may lock them.
  virtual std::span<const std::byte> memory() const = 0;
};

// The shuffled orders of epochs. Pipelines of the same dataset and seed can share them to avoid
// repeated shuffling.
class EpochOrders;
std::shared_ptr<EpochOrders> MakeEpochOrders(const Dataset& dataset, uint64_t seed);

struct TrainPipelineOptions {
  StepPlan plan;
  std::vector<Range> slices;  // of this worker; batches are ordered by step, then slice
  int64_t first_step = 0;
  uint64_t seed = 0;
  config::Data data;                              // preprocess, prefetch_threads, prefetch_batches
  std::shared_ptr<EpochOrders> orders = nullptr;  // null: the pipeline makes its own
  ImagesBy images = ImagesBy::kHost;
};
// `dataset` must outlive the pipeline. The destructor stops and joins the threads without finishing
// pending batches.
std::unique_ptr<BatchPipeline> MakeTrainPipeline(const Dataset& dataset,
                                                 const TrainPipelineOptions& options);

// One pass over the blocks [blocks.begin, blocks.end) of a set. Each block has `block_size`
// samples, except the set's last block, which may be smaller.
std::unique_ptr<BatchPipeline> MakeEvaluationPipeline(const Dataset& dataset,
                                                      const config::Data& data, int64_t block_size,
                                                      Range blocks,
                                                      ImagesBy images = ImagesBy::kHost);

// The memory of a pipeline of `batches` batches, each of up to `samples` samples of this shape.
size_t PrefetchBytes(int64_t batches, int64_t samples, const Shape& shape, int prefetch_batches,
                     ImagesBy images);

// The order of the `size` samples of one epoch: a permutation generated with Philox.
std::vector<int64_t> EpochOrder(int64_t size, uint64_t seed, int64_t epoch);

}  // namespace muster
