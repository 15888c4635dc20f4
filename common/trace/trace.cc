#include "common/trace/trace.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "common/trace/recorder.h"

namespace muster::trace {
namespace {

// Holds a thread's buffer and releases it when the thread ends.
class Handle {
 public:
  ~Handle() { Reset(nullptr); }
  void Reset(std::shared_ptr<ThreadBuffer> buffer) {
    if (buffer_) Recorder::Get().Release(buffer_);
    buffer_ = std::move(buffer);
  }
  ThreadBuffer* get() const { return buffer_.get(); }

 private:
  std::shared_ptr<ThreadBuffer> buffer_;
};

thread_local Handle this_thread;

}  // namespace

namespace internal {

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Event* Begin(const char* kind, std::string_view name, const Tags& tags) {
  ThreadBuffer* const buffer = this_thread.get();
  if (buffer == nullptr) return nullptr;
  if (buffer->size == buffer->events.size()) {
    ++buffer->dropped;
    return nullptr;
  }
  Event& event = buffer->events[buffer->size++];
  event.kind = kind;
  event.end_ns = 0;
  event.tags = tags;
  event.name_size = static_cast<uint8_t>(std::min(name.size(), sizeof event.name));
  name.copy(event.name, event.name_size);
  if (tags.step < 0) event.tags.step = buffer->step;
  event.begin_ns = Now();
  return &event;
}

}  // namespace internal

void NameThread(const std::string& name) {
  // Set the name shown by top, perf and debuggers (15 characters). The main thread keeps the
  // program's name.
  if (::gettid() != ::getpid())
    (void)::pthread_setname_np(::pthread_self(), name.substr(0, 15).c_str());
  this_thread.Reset(nullptr);
  this_thread.Reset(Recorder::Get().Acquire(name));
}

void AtStep(int64_t step) {
  ThreadBuffer* const buffer = this_thread.get();
  if (buffer == nullptr) return;
  buffer->step = step;
  internal::recording.store(Recorder::Get().Covers(step), std::memory_order_relaxed);
}

Recorder& Recorder::Get() {
  static Recorder* const recorder = new Recorder;
  return *recorder;
}

void Recorder::Start(int64_t first, int64_t end, size_t capacity) {
  const std::lock_guard lock(mutex_);
  started_ = true;
  first_ = first;
  end_ = end;
  capacity_ = capacity;
  buffers_.clear();
}

std::vector<std::shared_ptr<ThreadBuffer>> Recorder::Stop() {
  internal::recording.store(false, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  started_ = false;
  return std::move(buffers_);
}

std::shared_ptr<ThreadBuffer> Recorder::Acquire(const std::string& thread) {
  const std::lock_guard lock(mutex_);
  if (!started_) return nullptr;
  std::string name = thread;
  for (size_t i = 0, same = 1; i < buffers_.size(); ++i) {
    ThreadBuffer& buffer = *buffers_[i];
    if (buffer.name != name) continue;
    if (!buffer.in_use) {
      buffer.in_use = true;
      buffer.step = -1;
      return buffers_[i];
    }
    name = thread + " (" + std::to_string(++same) + ")";  // its index is higher
  }
  return buffers_.emplace_back(std::make_shared<ThreadBuffer>(name, capacity_));
}

void Recorder::Release(const std::shared_ptr<ThreadBuffer>& buffer) {
  const std::lock_guard lock(mutex_);
  buffer->in_use = false;
}

bool Recorder::Covers(int64_t step) const {
  const std::lock_guard lock(mutex_);
  return started_ && first_ <= step && step < end_;
}

}  // namespace muster::trace
