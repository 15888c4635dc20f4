// Threads that fill numbered batches ahead of their use, and hand them over in order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "worker/data/pipeline.h"

namespace muster {

// Where a batch is written: room for BatchSource::max_samples() samples.
struct BatchBuffer {
  float* images;  // null where the source has none
  int32_t* labels;
  int64_t* sample_ids;
};

// What is in the batches. Every method may be called from several threads at once.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual int64_t batches() const = 0;      // numbered from 0
  virtual int64_t max_samples() const = 0;  // of any batch
  virtual Shape shape() const = 0;          // of a sample
  virtual ImagesBy images() const = 0;
  // Step, index, epoch and count of a batch, without its contents.
  virtual PreparedBatch Describe(int64_t number) const = 0;
  virtual std::string Name(int64_t number) const = 0;  // for messages: "step 7, slice 2"
  // Writes the contents. Returns early, with anything in the buffer, once `stop` is requested.
  virtual void Fill(int64_t number, const BatchBuffer& buffer, std::stop_token stop) = 0;
};

// `depth` batches are made ahead of the one in use, each by one thread; all buffers are allocated
// at the start. What a thread throws is kept for its batch: the batches before it are still handed
// over, and no new ones are begun. Nobody spins.
class PrefetchRing final : public BatchPipeline {
 public:
  // Throws Error(kFailure) where threads or memory cannot be had.
  PrefetchRing(std::unique_ptr<BatchSource> source, int threads, int depth);
  ~PrefetchRing() override;

  const PreparedBatch& Next(double deadline_s) override;
  const PreparedBatch* Peek() override;

 private:
  struct FreeDeleter {
    void operator()(float* pointer) const { std::free(pointer); }
  };
  struct Slot {
    std::unique_ptr<float[], FreeDeleter> images;
    std::vector<int32_t> labels;
    std::vector<int64_t> sample_ids;
    PreparedBatch batch;
    int64_t ready = -1;  // the number of the batch that is complete in here
    std::exception_ptr error;
  };

  void Allocate();
  void Run(std::stop_token stop);
  // The number of a batch to fill, or -1 when there is nothing left to do.
  int64_t Claim(const std::stop_token& stop);
  void Make(int64_t number, Slot& slot, const std::stop_token& stop);
  Slot& SlotOf(int64_t number) { return slots_[static_cast<size_t>(number) % slots_.size()]; }

  const std::unique_ptr<BatchSource> source_;
  std::vector<Slot> slots_;

  std::mutex mutex_;
  std::condition_variable_any slot_freed_;  // for prefetch threads
  std::condition_variable batch_ready_;     // for Next()
  int64_t claimed_ = 0;                     // batches given to threads
  int64_t next_ = 0;                        // batches handed over
  int64_t released_ = 0;                    // batches whose buffer may be used again
  bool failed_ = false;

  std::vector<std::jthread> threads_;  // last: they use everything above
};

}  // namespace muster
