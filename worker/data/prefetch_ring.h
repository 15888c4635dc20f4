// Threads that fill numbered batches ahead of their use, and hand them over in order.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "worker/data/pipeline.h"

namespace muster {

// The memory of a batch: room for BatchSource::max_samples() samples.
struct BatchBuffer {
  float* images;    // only with ImagesBy::kHost
  uint8_t* pixels;  // only with ImagesBy::kHostPixels
  int32_t* labels;
  int64_t* sample_ids;
};

// Provides the contents of the batches. All methods are thread-safe.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual int64_t batches() const = 0;      // numbered from 0
  virtual int64_t max_samples() const = 0;  // the size of the largest batch
  virtual Shape shape() const = 0;          // the shape of a sample
  virtual ImagesBy images() const = 0;
  virtual PreparedBatch Describe(int64_t number) const = 0;
  virtual std::string Name(int64_t number) const = 0;  // for messages: "step 7, slice 2"
  // Writes these samples of the batch. Returns early, with undefined contents, if `stop` is
  // requested.
  virtual void Fill(int64_t number, Range samples, const BatchBuffer& buffer,
                    std::stop_token stop) = 0;
  // Completes a batch all of whose samples have been filled.
  virtual void Finish(int64_t /*number*/, const BatchBuffer& /*buffer*/) {}
};

// Makes `depth` batches ahead of the one in use. More threads than that share a batch. All buffers
// are allocated at the start, as one block of whole pages. If a thread throws, Next rethrows the
// exception when it reaches that thread's batch: earlier batches are still handed over, but no new
// ones are begun. Waiting threads block.
class PrefetchRing final : public BatchPipeline {
 public:
  // Throws Error(kFailure) if threads or memory are unavailable.
  PrefetchRing(std::unique_ptr<BatchSource> source, int threads, int depth);
  ~PrefetchRing() override;

  const PreparedBatch& Next(double deadline_s) override;
  const PreparedBatch* Peek() override;
  std::span<const std::byte> memory() const override { return {memory_.get(), bytes_}; }

 private:
  struct FreeDeleter {
    void operator()(std::byte* pointer) const { std::free(pointer); }
  };
  struct Slot {
    BatchBuffer buffer;  // in memory_
    PreparedBatch batch;
    int64_t ready = -1;  // the number of the complete batch in this slot
    int64_t done = 0;    // the number of parts of the next one that are filled
    std::exception_ptr error;
  };

  void Allocate();
  void Run(std::stop_token stop);
  // Returns the number of a part to fill, or -1 if none is left. Batch n has the parts from
  // n * parts_ on.
  int64_t Claim(const std::stop_token& stop);
  // Returns whether this completed the batch.
  bool Make(int64_t part, Slot& slot, const std::stop_token& stop);
  Slot& SlotOf(int64_t number) { return slots_[static_cast<size_t>(number) % slots_.size()]; }

  const std::unique_ptr<BatchSource> source_;
  const int64_t parts_;  // of each batch
  std::vector<Slot> slots_;
  size_t bytes_ = 0;
  std::unique_ptr<std::byte[], FreeDeleter> memory_;

  std::mutex mutex_;
  std::condition_variable_any slot_freed_;  // waited on by prefetch threads
  std::condition_variable batch_ready_;     // waited on by Next()
  int64_t claimed_ = 0;                     // the number of parts claimed by threads
  int64_t next_ = 0;                        // the number of batches handed over
  int64_t released_ = 0;                    // the number of batches whose buffer may be reused
  bool failed_ = false;

  std::vector<std::jthread> threads_;  // last: the threads use everything above
};

}  // namespace muster
