#include "ps/reporter.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/resource_limits.h"
#include "ps/metrics_line.h"
#include "ps/utc_now.h"

namespace muster {
namespace {

std::string Dump(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

constexpr auto kMust = EventPipe::Priority::kMust;
constexpr auto kProgress = EventPipe::Priority::kProgress;

}  // namespace

Reporter::Reporter(const std::string& metrics_path, int event_fd,
                   const checkpoint::Metrics* resumed)
    : metrics_path_(metrics_path),
      resumed_(resumed != nullptr ? std::optional(*resumed) : std::nullopt),
      events_(event_fd) {
  if (!metrics_path.empty()) Open();
}

void Reporter::Open() {
  const int how = resumed_ ? 0 : O_EXCL;
  metrics_fd_ =
      OpenPlainFile(metrics_path_, "a plain file", O_WRONLY | O_CREAT | how | O_APPEND).Release();
  if (metrics_fd_ >= 0) return;
  throw Error(ExitCode::kFailure, "{}: cannot be {}: {}", metrics_path_,
              resumed_ ? "opened" : "created", ErrorText(errno));
}

void Reporter::GoOn(int64_t from_step) {
  for (const LostServer& loss : losses_) {
    events::Event event;
    *event.mutable_restarted() = RestartAfter(loss, from_step);
    events_.Send(event, kMust);
    Append(MetricsLine(event.restarted()));
    restarts_.push_back(event.restarted());
  }
  losses_.clear();
  if (!unwritten_.empty()) WriteUnwritten();
}

Reporter::~Reporter() {
  if (metrics_fd_ >= 0) ::close(metrics_fd_);
}

void Reporter::Metrics(const events::Log& line) { Append(MetricsLine(line)); }
void Reporter::Metrics(const events::Evaluation& line) { Append(MetricsLine(line)); }
void Reporter::Metrics(const events::Summary& summary) { Append(MetricsLine(summary)); }

void Reporter::Metrics(const events::MemberChange& change) { Append(MetricsLine(change)); }
void Reporter::Metrics(const events::SharesChanged& change) { Append(MetricsLine(change)); }

void Reporter::Append(const nlohmann::ordered_json& line) {
  if (metrics_fd_ < 0) return;
  nlohmann::ordered_json stamped;
  stamped["time"] = UtcNow();
  stamped.update(line);
  unwritten_ += Dump(stamped);
  WriteUnwritten();
  WarnIfRemoved();
}

void Reporter::WriteUnwritten() {
  while (!unwritten_.empty()) {
    const ssize_t n = ::write(metrics_fd_, unwritten_.data(), unwritten_.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    metrics_bytes_ += n;
    metrics_hash_.Add(std::string_view(unwritten_).substr(0, static_cast<size_t>(n)));
    unwritten_.erase(0, static_cast<size_t>(n));
  }
  const bool new_trouble = metrics_trouble_.empty() && !unwritten_.empty();
  metrics_trouble_ = unwritten_.empty() ? ""
                                        : fmt::format("{}: cannot be written: {}", metrics_path_,
                                                      ErrorText(errno));
  if (!new_trouble) return;
  LogWarning("{}", metrics_trouble_);
  Warning(metrics_trouble_ + "; the run goes on, and it will be tried again");
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

void Reporter::MemberChanged(events::MemberChange change) {
  events::Event event;
  *event.mutable_member_change() = std::move(change);
  events_.Send(event, kMust);
}

void Reporter::SharesChanged(events::SharesChanged change) {
  events::Event event;
  *event.mutable_shares_changed() = std::move(change);
  events_.Send(event, kMust);
}

void Reporter::Warning(const std::string& message) {
  events::Event event;
  event.mutable_warning()->set_message(message);
  events_.Send(event, kMust);
}

void Reporter::Saving(int64_t step) {
  events::Event event;
  event.mutable_saving()->set_step(step);
  events_.Send(event, kMust);
}

void Reporter::Failure(const JobFailure& failure) {
  events::Event event;
  event.mutable_failure()->set_exit_code(static_cast<int32_t>(failure.code));
  if (failure.rank) event.mutable_failure()->set_rank(*failure.rank);
  event.mutable_failure()->set_what(failure.what);
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
