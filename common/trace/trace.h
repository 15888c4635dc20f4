// Records what the threads of this process do during some steps, as spans of time.
//
//   const trace::Session session(…);                  // main; see session.h
//   trace::NameThread("compute");                     // each thread, before it does anything
//   trace::AtStep(step);                              // the thread that follows the steps
//   const trace::Span span("forward", layer.name);    // until the end of the scope
//
// Outside the traced steps a span costs one relaxed load and a branch. During them, it costs two
// clock readings (CLOCK_MONOTONIC, shared by all processes of a host) and one store into the
// thread's buffer, but no lock, allocation or system call. A full buffer drops later spans and
// counts them.
//
// Spans of one thread nest, because they are scopes. Nothing is recorded in a thread without a name
// or in a process without a session.
//
// The recording is global to the process, because spans are in libraries that do not know each
// other. Spans never affect control flow.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace muster::trace {

// The subject of a span; -1: not applicable.
struct Tags {
  int64_t step = -1;  // default: the thread's last AtStep
  int32_t chunk = -1;
  int32_t slice = -1;
  int32_t rank = -1;  // if the span concerns another process
};

// The name is copied, because its owner may be gone when the trace is written.
struct Event {
  const char* kind;
  int64_t begin_ns, end_ns;  // end_ns 0: still open
  Tags tags;
  uint8_t name_size;
  char name[63];  // truncated if longer
};

namespace internal {
inline std::atomic<bool> recording{false};
Event* Begin(const char* kind, std::string_view name, const Tags& tags);
int64_t Now();
}  // namespace internal

// Whether spans are being recorded: true during the traced steps.
inline bool Recording() { return internal::recording.load(std::memory_order_relaxed); }

// Gives the calling thread a track, and shows `name` in the system's thread lists. Continues the
// track of an ended thread with the same name. If that thread is still alive, the new track is
// "name (2)".
void NameThread(const std::string& name);

// Sets the calling thread's step. This starts or stops recording in all threads.
void AtStep(int64_t step);

class Span {
 public:
  // `kind` must be a string literal, because only its address is stored.
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
