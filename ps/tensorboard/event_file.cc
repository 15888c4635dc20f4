#include "ps/tensorboard/event_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/base/process.h"
#include "common/base/records.h"
#include "common/base/resource_limits.h"

namespace muster {

double UnixTime() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

namespace {

// kMostPending: a large event is lost if more bytes than this would be pending. kSmall: maximum
// size of a small event.
constexpr size_t kMostPending = 8 << 20, kSmall = 32 << 10;

// TensorBoard reads files in the order of their names. This file must sort after all existing ones,
// even those of a server started in the same second.
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

std::string NewPath(const std::string& dir) {
  const ProcessIdentity self = ThisProcess();
  return fmt::format("{}/events.out.tfevents.{:010}.{}.{}.muster", dir, TimeAfterAll(dir),
                     self.host, self.pid);
}

}  // namespace

void EventFile::Events::Add(int64_t step) {
  first = count == 0 ? step : std::min(first, step);
  last = count == 0 ? step : std::max(last, step);
  ++count;
}

std::string EventFile::Events::Text() const {
  if (count == 1) return fmt::format("1 event of step {}", first);
  return fmt::format("{} events of steps {} to {}", count, first, last);
}

EventFile::EventFile(const std::string& dir, int64_t steps_done, Warn warn)
    : path_(NewPath(dir)), warn_(std::move(warn)) {
  tensorboard::Event version;
  version.set_wall_time(UnixTime());
  version.set_file_version("brain.Event:2");
  Append(version);
  tensorboard::Event start;
  start.set_wall_time(UnixTime());
  start.set_step(steps_done + 1);  // this step and later ones of earlier files no longer count
  start.mutable_session_log()->set_status(tensorboard::SessionLog::START);
  Append(start);
}

void EventFile::Append(const tensorboard::Event& event) {
  const std::string record = FrameRecord(event.SerializeAsString());
  if (pending_.empty() || record.size() <= kSmall ||
      pending_.size() + record.size() <= kMostPending) {
    pending_ += record;
    waiting_.push_back({record.size(), event.step()});
  } else {
    Lose(event.step());
  }
  Flush();
}

void EventFile::Lose(int64_t step) { lost_.Add(step); }

bool EventFile::Open() {
  if (!file_.valid()) {
    constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW;
    file_.Reset(::open(path_.c_str(), kFlags, 0666));
  }
  if (!file_.valid()) Fail("created");
  return file_.valid();
}

void EventFile::Fail(const char* what) {
  const std::string why = fmt::format("cannot be {}: {}", what, ErrorText(errno));
  if (!retry_.Note(why)) return;
  warn_(fmt::format(
      "{}: {}. The run continues; retrying later. Until then, TensorBoard shows no new data", path_,
      why));
}

void EventFile::Flush() {
  if (!Open()) return;
  size_t done = 0;
  while (done < pending_.size()) {
    const ssize_t n = ::write(file_.get(), pending_.data() + done, pending_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) Fail("written");
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  pending_.erase(0, done);
  while (!waiting_.empty() && done >= waiting_.front().bytes) {
    done -= waiting_.front().bytes;
    waiting_.pop_front();
  }
  if (!waiting_.empty()) waiting_.front().bytes -= done;
  if (retry_.trouble().empty() || !pending_.empty()) return;
  (void)retry_.Note("");
  warn_(path_ + ": can be written again; " +
        (lost_.count == 0 ? "nothing is missing" : "missing: " + lost_.Text()));
}

void EventFile::Sync() const {
  if (file_.valid()) (void)::fdatasync(file_.get());
}

void EventFile::TryAgain() {
  if (retry_.IsDue()) Flush();
}

std::string EventFile::Missing() {
  Flush();
  Events missing = lost_;
  for (const Waiting& one : waiting_) missing.Add(one.step);
  if (missing.count == 0) return "";
  const std::string& why = retry_.trouble();
  return fmt::format("{}: missing: {}{}", path_, missing.Text(), why.empty() ? "" : ": " + why);
}

}  // namespace muster
