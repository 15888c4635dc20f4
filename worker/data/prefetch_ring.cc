#include "worker/data/prefetch_ring.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "common/base/error.h"
#include "common/base/memory.h"
#include "common/base/resource_limits.h"
#include "common/plan/slices.h"
#include "common/trace/trace.h"

namespace muster {
namespace {

// One more buffer than the depth, for the batch in use, but no more than there are batches.
size_t SlotCount(int64_t batches, int depth) {
  return static_cast<size_t>(std::clamp<int64_t>(batches, 0, depth + 1));
}

// The number of parts of a batch, so that no thread is idle.
int64_t PartCount(int threads, int depth) {
  MUSTER_CHECK(threads >= 1 && depth >= 1);
  return (threads + depth - 1) / depth;
}

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// The offset of each part of a batch's memory, in bytes. Images come first.
struct Places {
  size_t sample_ids, labels, all;
};

// The bytes of a value of an image in host memory.
size_t ValueBytes(ImagesBy images) {
  return images == ImagesBy::kHost ? sizeof(float) : images == ImagesBy::kHostPixels ? 1 : 0;
}

Places PlacesFor(size_t samples, const Shape& shape, ImagesBy images) {
  Places places{};
  places.sample_ids =
      RoundUp(samples * static_cast<size_t>(shape.elements()) * ValueBytes(images), kCacheLine);
  places.labels = places.sample_ids + samples * sizeof(int64_t);
  places.all = RoundUp(places.labels + samples * sizeof(int32_t), kCacheLine);
  return places;
}

size_t BytesOfAll(size_t slots, size_t samples, const Shape& shape, ImagesBy images) {
  return RoundUp(slots * PlacesFor(samples, shape, images).all, kMostPage);
}

}  // namespace

size_t PrefetchBytes(int64_t batches, int64_t samples, const Shape& shape, int prefetch_batches,
                     ImagesBy images) {
  return BytesOfAll(SlotCount(batches, prefetch_batches), static_cast<size_t>(samples), shape,
                    images);
}

PrefetchRing::PrefetchRing(std::unique_ptr<BatchSource> source, int threads, int depth)
    : source_(std::move(source)), parts_(PartCount(threads, depth)) {
  slots_.resize(SlotCount(source_->batches(), depth));
  Allocate();
  const int64_t useful = std::min<int64_t>(threads, source_->batches() * parts_);
  try {
    for (int64_t i = 0; i < useful; ++i) {
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
  const Places places = PlacesFor(samples, source_->shape(), source_->images());
  bytes_ = BytesOfAll(slots_.size(), samples, source_->shape(), source_->images());
  try {
    memory_.reset(static_cast<std::byte*>(AllocateAligned(bytes_, kMostPage)));
  } catch (const std::bad_alloc&) {
    throw Error(ExitCode::kFailure,
                "not enough memory for {} prefetch buffers of {} samples ({} bytes each). Lower "
                "data.prefetch_batches or the batch size.",
                slots_.size(), samples, places.all);
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    std::byte* const begin = memory_.get() + i * places.all;
    const ImagesBy images = source_->images();
    slots_[i].buffer = {
        .images = images == ImagesBy::kHost ? reinterpret_cast<float*>(begin) : nullptr,
        .pixels = images == ImagesBy::kHostPixels ? reinterpret_cast<uint8_t*>(begin) : nullptr,
        .labels = reinterpret_cast<int32_t*>(begin + places.labels),
        .sample_ids = reinterpret_cast<int64_t*>(begin + places.sample_ids)};
  }
}

const PreparedBatch& PrefetchRing::Next(double deadline_s) {
  std::unique_lock lock(mutex_);
  MUSTER_CHECK(next_ < source_->batches());
  if (released_ != next_) {  // the caller is done with the previous batch
    released_ = next_;
    slot_freed_.notify_all();
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
    const int64_t batch = claimed_ / parts_;
    return failed_ || batch == source_->batches() ||
           batch < released_ + static_cast<int64_t>(slots_.size());
  };
  if (!slot_freed_.wait(lock, stop, may_go_on)) return -1;
  if (stop.stop_requested() || failed_ || claimed_ / parts_ == source_->batches()) return -1;
  const int64_t number = claimed_ / parts_;
  if (claimed_ % parts_ == 0) {
    Slot& slot = SlotOf(number);
    slot.done = 0;
    slot.batch = source_->Describe(number);
    slot.batch.images = slot.buffer.images;
    slot.batch.pixels = slot.buffer.pixels;
    slot.batch.labels = slot.buffer.labels;
    slot.batch.sample_ids = slot.buffer.sample_ids;
    MUSTER_CHECK(slot.batch.count <= source_->max_samples());
  }
  return claimed_++;
}

bool PrefetchRing::Make(int64_t part, Slot& slot, const std::stop_token& stop) {
  const int64_t number = part / parts_;
  const Range samples = EvenPart(slot.batch.count, parts_, part % parts_);
  if (!samples.empty()) source_->Fill(number, samples, slot.buffer, stop);
  {
    const std::lock_guard lock(mutex_);
    if (++slot.done < parts_) return false;
  }
  if (slot.batch.count > 0 && !stop.stop_requested()) source_->Finish(number, slot.buffer);
  return true;
}

void PrefetchRing::Run(std::stop_token stop) {
  for (int64_t part = Claim(stop); part >= 0; part = Claim(stop)) {
    Slot& slot = SlotOf(part / parts_);
    std::exception_ptr error;
    bool complete = false;
    try {
      complete = Make(part, slot, stop);
    } catch (...) {
      error = std::current_exception();
    }
    if (stop.stop_requested()) return;
    if (!complete && !error) continue;
    const std::lock_guard lock(mutex_);
    if (error) {  // the batch is ready to report it; its other parts no longer matter
      if (!slot.error) slot.error = error;
      failed_ = true;
      slot_freed_.notify_all();
    }
    slot.ready = part / parts_;
    batch_ready_.notify_one();
  }
}

}  // namespace muster
