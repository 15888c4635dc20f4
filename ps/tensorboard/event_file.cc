#include "ps/tensorboard/event_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <future>
#include <mutex>
#include <system_error>
#include <utility>

#include "common/base/fd.h"
#include "common/base/process.h"
#include "common/base/resource_limits.h"
#include "ps/tensorboard/event_records.h"

namespace muster {
namespace {

// Bytes of large events that may wait for the thread, and for room on the disk; and the size up to
// which an event is no large one.
constexpr size_t kMostQueued = 64 << 20, kMostPending = 8 << 20, kSmall = 32 << 10;

}  // namespace

double UnixTime() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void EventFile::Events::Add(int64_t step) { Add({.count = 1, .first = step, .last = step}); }

void EventFile::Events::Add(const Events& others) {
  if (others.count == 0) return;
  first = count == 0 ? others.first : std::min(first, others.first);
  last = count == 0 ? others.last : std::max(last, others.last);
  count += others.count;
}

std::string EventFile::Events::Text() const {
  return fmt::format("{} of its events, of steps {} to {}", count, first, last);
}

// Used by the thread, but for the troubles and `queued`.
struct EventFile::Shared {
  explicit Shared(std::string of) : path(std::move(of)) {}

  const std::string path;
  std::atomic<size_t> queued{0};  // bytes of the large events that the thread has not come to
  UniqueFd file;
  std::string pending;  // records that the disk has not taken; it may have the first bytes of one
  struct Waiting {
    size_t bytes;
    int64_t step;
  };
  std::deque<Waiting> waiting;  // each of `pending`
  bool failing = false;
  std::string why;    // … to be written
  Events lost, gone;  // since it fails; before

  std::mutex mutex;
  std::deque<std::string> troubles;

  void Say(const std::string& what) {
    const std::scoped_lock lock(mutex);
    troubles.push_back(path + ": " + what);
  }

  // Whatever cannot be done is tried again with the next event.
  void Fail(const char* what) {
    why = fmt::format("cannot be {}: {}", what, ErrorText(errno));
    if (failing) return;
    failing = true;
    Say(why +
        "; the run goes on, and it will be tried again; TensorBoard sees nothing later until then");
  }

  bool Open() {
    if (!file.valid()) {
      file.Reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    }
    if (!file.valid()) Fail("created");
    return file.valid();
  }

  void Append(const tensorboard::Event& event) {
    const std::string record = FrameRecord(event.SerializeAsString());
    if (pending.empty() || record.size() <= kSmall ||
        pending.size() + record.size() <= kMostPending) {
      pending += record;
      waiting.push_back({record.size(), event.step()});
    } else {
      lost.Add(event.step());
    }
    Flush();
  }

  void Flush() {
    if (!Open()) return;
    size_t done = 0;
    while (done < pending.size()) {
      const ssize_t n = ::write(file.get(), pending.data() + done, pending.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) Fail("written");
      if (n <= 0) break;
      done += static_cast<size_t>(n);
    }
    pending.erase(0, done);
    while (!waiting.empty() && done >= waiting.front().bytes) {
      done -= waiting.front().bytes;
      waiting.pop_front();
    }
    if (!waiting.empty()) waiting.front().bytes -= done;
    if (failing && pending.empty()) Recover();
  }

  void Recover() {
    failing = false;
    Say("can be written again; " +
        (lost.count == 0 ? "nothing of it is missing" : "it lacks " + lost.Text()));
    gone.Add(lost);
    lost = {};
  }

  Events Missing() const {
    Events missing = gone;
    missing.Add(lost);
    for (const Waiting& one : waiting) missing.Add(one.step);
    return missing;
  }
};

namespace {

// TensorBoard reads files in the order of their names, and this one counts from its first step on:
// it must come after all that are there, also of a server that was started in the same second.
int64_t TimeAfterAll(const std::string& dir) {
  constexpr std::string_view kPrefix = "events.out.tfevents.";
  auto time = static_cast<int64_t>(UnixTime());
  std::error_code error;
  for (std::filesystem::directory_iterator at(dir, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename();
    if (!name.starts_with(kPrefix)) continue;
    const int64_t other = std::strtoll(name.c_str() + kPrefix.size(), nullptr, 10);
    if (other < 9'999'999'999) time = std::max(time, other + 1);
  }
  return time;
}

}  // namespace

EventFile::EventFile(const std::string& dir, int64_t steps_done, BackgroundThread& thread)
    : thread_(thread) {
  const ProcessIdentity self = ThisProcess();
  shared_ = std::make_shared<Shared>(fmt::format("{}/events.out.tfevents.{:010}.{}.{}.muster", dir,
                                                 TimeAfterAll(dir), self.host, self.pid));
  (void)shared_->Open();
  tensorboard::Event version;
  version.set_file_version("brain.Event:2");
  Write(std::move(version));
  tensorboard::Event start;
  start.set_step(steps_done + 1);  // of this one and later ones
  start.mutable_session_log()->set_status(tensorboard::SessionLog::START);
  Write(std::move(start));
}

EventFile::~EventFile() = default;

void EventFile::Write(tensorboard::Event event) {
  std::vector<tensorboard::Event> one;
  one.push_back(std::move(event));
  WriteAll(std::move(one));
}

void EventFile::WriteAll(std::vector<tensorboard::Event> events) {
  size_t large = 0;
  std::erase_if(events, [&](tensorboard::Event& event) {
    if (event.wall_time() == 0) event.set_wall_time(UnixTime());
    const size_t bytes = event.ByteSizeLong(), waiting = shared_->queued + large;
    if (bytes <= kSmall) return false;
    const bool fits = waiting == 0 || waiting + bytes <= kMostQueued;
    if (fits) {
      large += bytes;
    } else {
      Refuse(event.step());
    }
    return !fits;
  });
  shared_->queued += large;
  thread_.Submit([shared = shared_, events = std::move(events), large] {
    for (const tensorboard::Event& event : events) shared->Append(event);
    shared->queued -= large;
  });
}

void EventFile::Refuse(int64_t step) {
  if (refused_.count == 0) {
    shared_->Say("the disk is too slow: TensorBoard will miss some of this run");
  }
  refused_.Add(step);
}

void EventFile::AwaitWritten(std::chrono::seconds at_most) {
  const auto done = std::make_shared<std::promise<void>>();
  const std::future<void> written = done->get_future();
  thread_.Submit([shared = shared_, done] {
    if (shared->file.valid()) (void)::fdatasync(shared->file.get());
    done->set_value();
  });
  (void)written.wait_for(at_most);
}

std::optional<std::string> EventFile::TakeTrouble() {
  const std::scoped_lock lock(shared_->mutex);
  if (shared_->troubles.empty()) return std::nullopt;
  std::string first = std::move(shared_->troubles.front());
  shared_->troubles.pop_front();
  return first;
}

std::string EventFile::Missing(std::chrono::seconds at_most) {
  using Found = std::pair<Events, std::string>;
  const auto done = std::make_shared<std::promise<Found>>();
  std::future<Found> looked = done->get_future();
  thread_.Submit([shared = shared_, done] {
    shared->Flush();
    done->set_value({shared->Missing(), shared->pending.empty() ? "" : shared->why});
  });
  if (looked.wait_for(at_most) != std::future_status::ready) {
    return fmt::format("{}: the disk has not taken all of it within {} s", path(), at_most.count());
  }
  auto [missing, why] = looked.get();
  missing.Add(refused_);
  if (missing.count == 0) return "";
  return fmt::format("{}: lacks {}{}", path(), missing.Text(), why.empty() ? "" : ": it " + why);
}

const std::string& EventFile::path() const { return shared_->path; }

}  // namespace muster
