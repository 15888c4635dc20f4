#include "worker/data/prefetch_ring.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "common/base/error.h"
#include "common/base/resource_limits.h"
#include "common/trace/trace.h"

namespace muster {
namespace {

constexpr size_t kAlignment = 64;

// One more buffer than the depth, for the batch in use, but no more than there are batches.
size_t SlotCount(int64_t batches, int depth) {
  return static_cast<size_t>(std::clamp<int64_t>(batches, 1, depth + 1));
}

size_t ImageBytes(size_t samples, const Shape& shape) {
  const size_t bytes = samples * static_cast<size_t>(shape.elements()) * sizeof(float);
  return std::max(bytes + kAlignment - 1, kAlignment) & ~(kAlignment - 1);
}

}  // namespace

size_t PrefetchBytes(int64_t batches, int64_t samples, const Shape& shape, int prefetch_batches,
                     ImagesBy images) {
  const auto count = static_cast<size_t>(samples);
  return SlotCount(batches, prefetch_batches) *
         ((images == ImagesBy::kHost ? ImageBytes(count, shape) : 0) +
          count * (sizeof(int32_t) + sizeof(int64_t)));
}

PrefetchRing::PrefetchRing(std::unique_ptr<BatchSource> source, int threads, int depth)
    : source_(std::move(source)) {
  MUSTER_CHECK(threads >= 1 && depth >= 1);
  slots_.resize(SlotCount(source_->batches(), depth));
  Allocate();
  // Any threads beyond the depth would never find a free buffer.
  const int useful = std::min(threads, depth);
  try {
    for (int i = 0; i < useful; ++i) {
      threads_.emplace_back([this, i](std::stop_token stop) {
        trace::NameThread("prefetch " + std::to_string(i));
        Run(std::move(stop));
      });
    }
  } catch (const std::system_error& error) {
    throw Error(ExitCode::kFailure,
                "cannot start prefetch thread {} of {}: {}; lower data.prefetch_threads, or raise "
                "the limit",
                threads_.size() + 1, useful, ErrorText(error.code().value()));
  }
}

// Requests a stop of all threads before the first is joined. This also wakes waiting threads.
PrefetchRing::~PrefetchRing() {
  for (std::jthread& thread : threads_) thread.request_stop();
}

void PrefetchRing::Allocate() {
  const auto samples = static_cast<size_t>(source_->max_samples());
  const size_t bytes = ImageBytes(samples, source_->shape());
  for (Slot& slot : slots_) {
    slot.labels.resize(samples);
    slot.sample_ids.resize(samples);
    if (source_->images() == ImagesBy::kDevice) continue;
    slot.images.reset(static_cast<float*>(std::aligned_alloc(kAlignment, bytes)));
    if (slot.images == nullptr) {
      throw Error(ExitCode::kFailure,
                  "not enough memory for {} prefetch buffers of {} samples ({} bytes each). Lower "
                  "data.prefetch_batches or the batch size.",
                  slots_.size(), samples, bytes);
    }
  }
}

const PreparedBatch& PrefetchRing::Next(double deadline_s) {
  std::unique_lock lock(mutex_);
  MUSTER_CHECK(next_ < source_->batches());
  if (released_ != next_) {  // the caller is done with the previous batch
    released_ = next_;
    slot_freed_.notify_one();
  }
  Slot& slot = SlotOf(next_);
  const trace::Span span("wait", "batch");
  // Clamping prevents an overflow of clock plus deadline.
  const std::chrono::duration<double> deadline(std::clamp(deadline_s, 0.0, 1e9));
  if (!batch_ready_.wait_for(lock, deadline, [&] { return slot.ready == next_; })) {
    throw Error(
        ExitCode::kDeadline,
        "input pipeline: {1} ({2} samples) was not ready after {0} s with {3} prefetch threads: "
        "the disk is slow or the machine overloaded; raise data.prefetch_threads or the deadline",
        deadline_s, source_->Name(next_), source_->Describe(next_).count, threads_.size());
  }
  if (slot.error) std::rethrow_exception(slot.error);
  ++next_;
  return slot.batch;
}

const PreparedBatch* PrefetchRing::Peek() {
  const std::lock_guard lock(mutex_);
  if (next_ == source_->batches()) return nullptr;
  const Slot& slot = SlotOf(next_);
  return slot.ready == next_ && !slot.error ? &slot.batch : nullptr;
}

int64_t PrefetchRing::Claim(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const auto may_go_on = [&] {
    return failed_ || claimed_ == source_->batches() ||
           claimed_ < released_ + static_cast<int64_t>(slots_.size());
  };
  if (!slot_freed_.wait(lock, stop, may_go_on)) return -1;
  if (stop.stop_requested() || failed_ || claimed_ == source_->batches()) return -1;
  return claimed_++;
}

void PrefetchRing::Make(int64_t number, Slot& slot, const std::stop_token& stop) {
  slot.batch = source_->Describe(number);
  slot.batch.images = slot.images.get();
  slot.batch.labels = slot.labels.data();
  slot.batch.sample_ids = slot.sample_ids.data();
  MUSTER_CHECK(slot.batch.count <= source_->max_samples());
  if (slot.batch.count == 0) return;
  source_->Fill(number, {slot.images.get(), slot.labels.data(), slot.sample_ids.data()}, stop);
}

void PrefetchRing::Run(std::stop_token stop) {
  for (int64_t number = Claim(stop); number >= 0; number = Claim(stop)) {
    Slot& slot = SlotOf(number);
    std::exception_ptr error;
    try {
      Make(number, slot, stop);
    } catch (...) {
      error = std::current_exception();
    }
    if (stop.stop_requested()) return;
    const std::lock_guard lock(mutex_);
    slot.error = error;
    slot.ready = number;
    if (error) {
      failed_ = true;
      slot_freed_.notify_all();
    }
    batch_ready_.notify_one();
  }
}

}  // namespace muster
