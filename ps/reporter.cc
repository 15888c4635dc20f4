#include "ps/reporter.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/base/error.h"
#include "common/base/resource_limits.h"
#include "ps/metrics_line.h"

namespace muster {
namespace {

std::string UtcNow() {
  const auto now = std::chrono::system_clock::now();
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  const auto seconds = static_cast<std::time_t>(ms / 1000);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
  return fmt::format("{}.{:03}Z", text, ms % 1000);
}

std::string Dump(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

constexpr auto kMust = EventPipe::Priority::kMust;
constexpr auto kProgress = EventPipe::Priority::kProgress;

}  // namespace

Reporter::Reporter(const std::string& metrics_path, int event_fd)
    : metrics_path_(metrics_path), events_(event_fd) {
  if (!metrics_path.empty()) {
    metrics_fd_ =
        ::open(metrics_path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (metrics_fd_ < 0) {
      throw Error(ExitCode::kFailure, "{}: cannot be created: {}", metrics_path, ErrorText(errno));
    }
  }
}

Reporter::~Reporter() {
  if (metrics_fd_ >= 0) ::close(metrics_fd_);
}

void Reporter::Metrics(const events::Log& line) { Append(MetricsLine(line)); }
void Reporter::Metrics(const events::Evaluation& line) { Append(MetricsLine(line)); }
void Reporter::Metrics(const events::Summary& summary) { Append(MetricsLine(summary)); }

void Reporter::Append(const nlohmann::ordered_json& line) {
  if (metrics_fd_ < 0) return;
  nlohmann::ordered_json stamped;
  stamped["time"] = UtcNow();
  stamped.update(line);
  const std::string text = Dump(stamped);
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(metrics_fd_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      throw Error(ExitCode::kFailure, "{}: cannot be written: {}", metrics_path_, ErrorText(errno));
    }
    done += static_cast<size_t>(n);
  }
  WarnIfRemoved();
}

void Reporter::WarnIfRemoved() {
  struct stat status {};
  if (removal_reported_ || ::fstat(metrics_fd_, &status) != 0 || status.st_nlink > 0) return;
  removal_reported_ = true;
  Warning(fmt::format("{} has been removed: the run goes on, but what it writes there is lost",
                      metrics_path_));
}

void Reporter::Listening(const std::string& endpoint) {
  events::Event event;
  event.mutable_listening()->set_endpoint(endpoint);
  events_.Send(event, kMust);
}

void Reporter::Joined(uint32_t rank, const std::string& message) {
  events::Event event;
  event.mutable_joined()->set_rank(rank);
  event.mutable_joined()->set_message(message);
  events_.Send(event, kMust);
}

void Reporter::Refused(const std::string& message) {
  events::Event event;
  event.mutable_refused()->set_message(message);
  events_.Send(event, kMust);
}

void Reporter::Waiting(const std::vector<uint32_t>& missing, double elapsed_s) {
  events::Event event;
  event.mutable_waiting()->mutable_missing()->Add(missing.begin(), missing.end());
  event.mutable_waiting()->set_elapsed_s(elapsed_s);
  events_.Send(event, kMust);
}

void Reporter::Started(events::Started started) {
  events::Event event;
  *event.mutable_started() = std::move(started);
  events_.Send(event, kMust);
}

void Reporter::Progress(events::Progress line) {
  events::Event event;
  *event.mutable_progress() = std::move(line);
  events_.Send(event, kProgress);
}

void Reporter::Log(events::Log line) {
  events::Event event;
  *event.mutable_log() = std::move(line);
  events_.Send(event, kMust);
}

void Reporter::Evaluation(events::Evaluation line) {
  events::Event event;
  *event.mutable_evaluation() = std::move(line);
  events_.Send(event, kMust);
}

void Reporter::SkippedStep(events::SkippedStep step) {
  events::Event event;
  *event.mutable_skipped_step() = std::move(step);
  events_.Send(event, kMust);
}

void Reporter::Warning(const std::string& message) {
  events::Event event;
  event.mutable_warning()->set_message(message);
  events_.Send(event, kMust);
}

void Reporter::Failure(const JobFailure& failure) {
  events::Event event;
  event.mutable_failure()->set_exit_code(static_cast<int32_t>(failure.code));
  if (failure.rank) event.mutable_failure()->set_rank(*failure.rank);
  event.mutable_failure()->set_what(failure.what);
  events_.Send(event, kMust);
}

void Reporter::Saving() {
  events::Event event;
  event.mutable_saving();
  events_.Send(event, kMust);
}

void Reporter::Summary(events::Summary summary) {
  events::Event event;
  *event.mutable_summary() = std::move(summary);
  events_.Send(event, kMust);
}

void Reporter::Beat() {
  events::Event event;
  event.mutable_beat();
  events_.Send(event, kProgress);
}

}  // namespace muster
