#include "ps/record/recorder.h"

#include <fmt/core.h>

#include <chrono>
#include <utility>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/utc_time.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/events/count_change.h"
#include "common/events/event_log.h"
#include "common/events/metrics_line.h"

namespace muster {
namespace {

constexpr std::chrono::seconds kSavingInterval{1};
constexpr std::chrono::minutes kLongestWait{1};  // waits for the disk after the run has ended

}  // namespace

Recorder::Recorder(const config::Config& config, const Graph& graph, int event_fd,
                   const checkpoint::State* resumed, std::vector<LostServer> losses)
    : dir_(config.run().dir()),
      pipe_(event_fd),
      losses_(std::move(losses)),
      log_(dir_, resumed, [this](const std::string& message) { Notice(message); }),
      status_page_(dir_.empty() ? "" : dir_ + "/" + kEventLog),
      board_(config, graph, thread_, [this](const std::string& message) { Notice(message); }) {}

void Recorder::Record(const events::Event& event, const std::vector<SampleImage>& images) {
  LogEvent(event);
  Count(event);
  Append(event);
  if (event.has_log()) board_.Log(event);
  if (event.has_evaluation()) board_.Evaluation(event, images);
  pipe_.Send(event);
  for (const std::string& message : TakeNotices()) Warn(message);
}

void Recorder::Count(const events::Event& event) {
  if (event.has_log()) {
    measured_ = event.log().measured();
    learning_rate_ = event.log().learning_rate();
  }
  if (event.has_member_change()) CountChange(event.member_change(), so_far_);
  if (event.has_shares_changed()) {
    *so_far_.mutable_shares() = event.shares_changed();
    so_far_.set_shares_changed(so_far_.shares_changed() + 1);
  }
  if (event.has_restarted()) *so_far_.add_restarts() = event.restarted();
}

void Recorder::Append(const events::Event& event) {
  if (log_.fd() < 0 || !IsDurable(event)) return;
  events::Event stamped = event;
  stamped.set_unix_ms(UnixMilliseconds());
  if (!begun_) return waiting_.push_back(std::move(stamped));
  thread_.Submit([this, stamped = std::move(stamped)] { log_.Append(stamped); });
}

void Recorder::Begin(int64_t step) {
  board_.Begin(step);
  std::vector<events::Event> lacking;
  log_.Begin(step, [&](const events::Event& event) {
    if (event.has_restarted()) *so_far_.add_restarts() = event.restarted();
    if (board_.Lacks(event)) lacking.push_back(event);
  });
  board_.WriteAgain(lacking);
  begun_ = true;
  thread_.Submit([this, waiting = std::exchange(waiting_, {})] {
    log_.Flush();
    for (const events::Event& event : waiting) log_.Append(event);
  });
  for (const LostServer& loss : std::exchange(losses_, {})) {
    events::Event event;
    *event.mutable_restarted() = RestartAfter(loss, step);
    Record(event);
  }
}

std::shared_future<RunLog::Kept> Recorder::Keep() {
  const auto kept = std::make_shared<std::promise<RunLog::Kept>>();
  thread_.Submit([this, kept] {
    // Sync the TensorBoard records, because a resumed run does not rewrite those of earlier steps.
    if (board_.file() != nullptr) board_.file()->Sync();
    kept->set_value(log_.Keep());
  });
  return kept->get_future().share();
}

void Recorder::Status(events::Status status) {
  if (!wants_status() || status_waits_.exchange(true)) return;
  status.set_learning_rate(learning_rate_);
  *status.mutable_progress()->mutable_measured() = measured_;
  thread_.Submit([this, status = std::move(status), begun = begun_] {
    status_waits_ = false;
    status_page_.Write(status);
    if (begun) TryAgain();  // retried here because this runs every second
  });
}

void Recorder::TryAgain() {
  log_.TryAgain();
  if (board_.file() != nullptr) board_.file()->TryAgain();
  if (files_retry_.IsDue()) WriteFiles();
}

void Recorder::EndRetries() {
  log_.EndRetries();
  if (board_.file() != nullptr) board_.file()->EndRetries();
  files_retry_.End();
}

void Recorder::WriteFile(const std::string& name, std::string text) {
  if (dir_.empty()) return;
  thread_.Submit([this, path = dir_ + "/" + name, text = std::move(text)] {
    files_[path] = text;
    WriteFiles();
  });
}

void Recorder::WriteFiles() {
  std::string trouble;
  std::erase_if(files_, [&](const auto& file) {
    try {
      WriteFileAtomically(file.first, file.second);
      return true;
    } catch (const Error& error) {
      trouble = error.what();
      return false;
    }
  });
  if (files_retry_.Note(trouble)) Notice(trouble + "; retrying later");
}

Recorder::Missing Recorder::WriteAll() {
  log_.Flush();
  WriteFiles();
  Missing missing{.trouble = JoinTroubles(log_.trouble(), files_retry_.trouble())};
  if (board_.file() != nullptr) missing.lost = board_.file()->Missing();
  if (!missing.lost.empty()) {
    missing.lost += "; TensorBoard will not show these data";
    if (!ListCheckpoints(dir_).empty()) {  // otherwise the run cannot be resumed
      missing.lost +=
          ". To restore the most recent from run.events, continue the run with --resume";
    }
  }
  return missing;
}

void Recorder::Notice(const std::string& message) {
  const std::lock_guard lock(mutex_);
  notices_.push_back(message);
}

std::vector<std::string> Recorder::TakeNotices() {
  const std::lock_guard lock(mutex_);
  return std::exchange(notices_, {});
}

events::Summary Recorder::Finish(events::Summary summary, events::Status status) {
  summary.MergeFrom(so_far_);
  thread_.Submit([this] { EndRetries(); });
  events::Event event;
  *event.mutable_summary() = summary;
  if (begun_) Append(event);
  board_.End(summary);
  status.set_state(NameOf(summary.end()));
  status.clear_waits();
  measured_ = summary.measured();
  status_waits_ = false;
  Status(std::move(status));

  const Missing missing = begun_ ? AwaitAll(summary.at().step()) : Missing();
  summary.set_trouble(JoinTroubles(summary.trouble(), missing.trouble));
  summary.set_lost(JoinTroubles(summary.lost(), missing.lost));
  for (const std::string& message : TakeNotices()) Warn(message);
  *event.mutable_summary() = summary;
  pipe_.Send(event);
  return summary;
}

// Sends saving events while it waits, because the launcher waits as long as it receives them.
Recorder::Missing Recorder::AwaitAll(int64_t step) {
  const auto written = std::make_shared<std::promise<Missing>>();
  std::future<Missing> missing = written->get_future();
  thread_.Submit([this, written] { written->set_value(WriteAll()); });
  const auto deadline = std::chrono::steady_clock::now() + kLongestWait;
  while (missing.wait_for(kSavingInterval) != std::future_status::ready) {
    if (std::chrono::steady_clock::now() > deadline) {
      return {.trouble = dir_ + ": not all data could be written in time"};
    }
    Record(SavingEvent(step));
  }
  return missing.get();
}

}  // namespace muster
