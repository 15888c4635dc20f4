// What the threads of this process do during some steps, as spans of time.
//
//   const trace::Session session(…);                  // main; see session.h
//   trace::NameThread("compute");                     // each thread, before it does anything
//   trace::AtStep(step);                              // the thread that follows the steps
//   const trace::Span span("forward", layer.name);    // until the end of the scope
//
// Outside the traced steps a span costs one relaxed load and a branch. Inside, it costs two
// readings of the clock (CLOCK_MONOTONIC, which all processes of a host share) and one store into
// a buffer of its thread: no lock, no allocation, no system call. A full buffer drops what comes
// later, and counts it.
//
// Spans of one thread nest, since they are scopes. A thread without a name, or without a session
// in its process, records nothing.
//
// The recording is the process's, not an object that is handed around: spans stand in libraries
// that know nothing of one another, and decide nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace muster::trace {

// What a span is about; -1: nothing of this kind.
struct Tags {
  int64_t step = -1;  // default: the one that the thread last gave to AtStep
  int32_t chunk = -1;
  int32_t slice = -1;
  int32_t rank = -1;  // whose, where it is another process's
};

// Kept by value: whoever had the name may be gone when the trace is written.
struct Event {
  const char* kind;
  int64_t begin_ns, end_ns;  // end 0: not over yet
  Tags tags;
  uint8_t name_size;
  char name[63];  // of a longer one, the beginning
};

namespace internal {
inline std::atomic<bool> recording{false};
Event* Begin(const char* kind, std::string_view name, const Tags& tags);
int64_t Now();
}  // namespace internal

// True during the traced steps.
inline bool Recording() { return internal::recording.load(std::memory_order_relaxed); }

// Gives the calling thread a track, and this name in the system's lists. Where a thread of the same
// name has ended, the track goes on; where one lives, this one's is called "name (2)".
void NameThread(const std::string& name);

// The calling thread is at this step now; recording begins or ends with it, in all threads.
void AtStep(int64_t step);

class Span {
 public:
  // `kind` is a literal.
  explicit Span(const char* kind, std::string_view name = {}, const Tags& tags = {})
      : event_(Recording() ? internal::Begin(kind, name, tags) : nullptr) {}
  ~Span() {
    if (event_ != nullptr) event_->end_ns = internal::Now();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  Event* const event_;
};

}  // namespace muster::trace
