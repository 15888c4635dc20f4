#include "ps/reporter.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>
#include <utility>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/resource_limits.h"
#include "ps/metrics_line.h"
#include "ps/utc_now.h"

namespace muster {
namespace {

std::string Dump(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string ReadAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
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
      ::open(metrics_path_.c_str(), O_WRONLY | O_CREAT | how | O_APPEND | O_CLOEXEC, 0644);
  if (metrics_fd_ >= 0) return;
  throw Error(ExitCode::kFailure, "{}: cannot be {}: {}", metrics_path_,
              resumed_ ? "opened" : "created", ErrorText(errno));
}

void Reporter::CutMetrics(const DueLines& due) {
  if (!resumed_ || metrics_fd_ < 0) return;
  struct stat status {};
  if (::fstat(metrics_fd_, &status) != 0) status.st_size = 0;
  unwritten_ = resumed_->unwritten();
  metrics_bytes_ = resumed_->bytes();
  const bool as_it_was = resumed_->has_xxh3() && status.st_size >= metrics_bytes_ &&
                         HashOfStart(metrics_path_, metrics_bytes_).value() == resumed_->xxh3();
  if (!as_it_was) metrics_bytes_ = FindCut(due);
  const MetricsEvents told = ReadMetricsEvents(metrics_path_, metrics_bytes_);
  restarts_ = told.restarts;
  if (status.st_size > metrics_bytes_ && ::ftruncate(metrics_fd_, metrics_bytes_) != 0) {
    throw Error(ExitCode::kFailure, "{}: cannot be cut to {} bytes: {}", metrics_path_,
                metrics_bytes_, ErrorText(errno));
  }
  metrics_hash_ = HashOfStart(metrics_path_, metrics_bytes_);
  for (const std::string& line : told.undone) {
    if (unwritten_.find(line) == std::string::npos) unwritten_ += line;
  }
}

// The file is not the one that the checkpoint knows; or the checkpoint is of a version that kept no
// hash.
int64_t Reporter::FindCut(const DueLines& due) {
  const std::string text = ReadAll(metrics_path_);
  const std::string_view whole = text;
  const size_t bytes = KeptLinesOf(whole, due).bytes;
  std::istringstream lines(std::exchange(unwritten_, ""));
  for (std::string line; std::getline(lines, line);) {  // there may have been room again
    line += '\n';
    if (whole.substr(0, bytes).find(line) == std::string_view::npos) unwritten_ += line;
  }
  const bool expected = !resumed_->has_xxh3() && static_cast<int64_t>(bytes) == resumed_->bytes();
  if (!expected && bytes < whole.size()) PutAside(whole.substr(bytes));
  std::string lacking = LackingText(due, KeptLinesOf(text.substr(0, bytes) + unwritten_, due));
  if (lacking.empty()) return static_cast<int64_t>(bytes);
  lacking = fmt::format(
      "{}: is not as the run left it: {}; the weights are whole, and the run goes on, but these "
      "lines come back only if it is repeated from its config",
      metrics_path_, lacking);
  LogWarning("{}", lacking);
  Warning(lacking);
  return static_cast<int64_t>(bytes);
}

// Whoever changed the file may want what is in it.
void Reporter::PutAside(std::string_view lines) {
  const std::string path =
      std::filesystem::path(metrics_path_).replace_filename("metrics-cut.jsonl");
  std::ofstream file(path, std::ios::binary | std::ios::app);
  file << lines << std::flush;
  if (!file) {
    throw Error(ExitCode::kFailure,
                "{}: is not as the run left it, and what is to be cut off cannot be kept in {}: {}",
                metrics_path_, path, ErrorText(errno));
  }
  LogWarning("{}: is not as the run left it: what was behind the checkpoint is in {}",
             metrics_path_, path);
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

void Reporter::SaveMetricsTo(const std::string& folder, const SavedFor& run) {
  if (metrics_trouble_.empty() || folder.empty()) return;
  const std::string path = folder + "/metrics.jsonl";
  std::string text(static_cast<size_t>(metrics_bytes_), '\0');
  std::ifstream(metrics_path_).read(text.data(), metrics_bytes_);
  text += unwritten_;
  try {
    MarkSavedFor(folder, run);
    WriteFileAtomically(path, text);
    metrics_trouble_ += "; all of it is in " + path;
  } catch (const Error& error) {
    metrics_trouble_ += fmt::format("; {}", error.what());
  }
}

checkpoint::Metrics Reporter::KeepMetrics() const {
  checkpoint::Metrics kept;
  kept.set_bytes(metrics_bytes_);
  kept.set_unwritten(unwritten_);
  kept.set_xxh3(metrics_hash_.value());
  return kept;
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
