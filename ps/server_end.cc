// What is left of a run when it ends, however it ends.
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "ps/metrics_line.h"
#include "ps/server.h"

namespace muster {
namespace {

constexpr std::chrono::milliseconds kSavingInterval{1000};

}  // namespace

std::string Server::SaveModels() {
  ModelSaver& saver = coordinator_.saver();
  if (!coordinator_.has_begun() || !saver.writes()) return "";
  saver.SaveLast(coordinator_.step());
  do {
    reporter_.Saving(coordinator_.step());
    members_.TurnAway();
  } while (!saver.writer().Await(kSavingInterval));
  return Join(saver.writer().TakeFailures(), "; ");
}

events::Summary Server::SummaryOf(events::Summary::End end) const {
  events::Summary summary = coordinator_.progress().Summary(end, coordinator_.weights_hash());
  coordinator_.changes().Put(summary);
  coordinator_.shares().Put(summary);
  for (const auto& model : coordinator_.saver().writer().saved()) *summary.add_models() = model;
  for (const auto& restarted : reporter_.restarts()) *summary.add_restarts() = restarted;
  return summary;
}

void Server::EndFailed() {
  const JobFailure& failure = *failure_.get();
  const bool interrupted =
      failure.code == ExitCode::kTerminated || failure.code == ExitCode::kInterrupted;
  LogError("{}", failure.what);
  if (!interrupted) reporter_.Failure(failure);
  members_.StopAll(false, failure.what);
  // What would not be finite again is no place to go on from.
  if (failure.code != ExitCode::kNonfinite && coordinator_.AtBoundary()) KeepLast();
  // What was reached: the last version whose chunks are all there.
  const std::string lost = SaveModels();
  if (!lost.empty()) {
    LogError("{}", lost);
    reporter_.Warning(lost);
  }
  events::Summary summary = SummaryOf(interrupted && !job_failed_ ? events::Summary::INTERRUPTED
                                                                  : events::Summary::FAILED);
  // A run that never began leaves no line: its directory can be used again.
  if (coordinator_.has_begun()) reporter_.Metrics(summary);
  coordinator_.End(summary);
  AddSaved(lost, summary);
  reporter_.Summary(summary);
  throw Error(failure.code, "{}", failure.what);
}

ServerResult Server::EndCompleted() {
  members_.StopAll(true, "the run is complete");
  const std::string lost = SaveModels();
  ServerResult result{.steps = coordinator_.step(),
                      .weights_hash = coordinator_.weights_hash(),
                      .dropped_messages = dropped_.count()};
  events::Summary summary = SummaryOf(events::Summary::COMPLETED);
  reporter_.Metrics(summary);
  coordinator_.End(summary);
  AddSaved(lost, summary);
  reporter_.Summary(summary);
  result.trouble = summary.trouble().empty() ? summary.lost() : summary.trouble();
  LogInfo("completed: {}", MetricsLine(summary).dump());
  if (summary.test().has_accuracy()) result.test_accuracy = summary.test().accuracy();
  return result;
}

// The launcher waits for the disk as long as it is told that something is written.
void Server::KeepLast() {
  Clock::time_point next = Clock::now();
  coordinator_.KeepLast([&] {
    if (Clock::now() < next) return;
    next = Clock::now() + kSavingInterval;
    reporter_.Saving(coordinator_.step());
  });
}

void Server::AddSaved(const std::string& lost_models, events::Summary& summary) {
  const Checkpoints& checkpoints = coordinator_.checkpoints();
  if (const auto newest = checkpoints.newest()) {
    summary.set_checkpoint(checkpoints.newest_in());
    summary.set_checkpoint_step(newest->step);
  }
  std::vector<std::string> troubles;
  std::vector<std::string> lost;
  for (const std::string& one : {coordinator_.saver().lost(), coordinator_.LackingEvents()}) {
    if (!one.empty()) lost.push_back(one);
  }
  summary.set_lost(Join(lost, "; "));
  for (const std::string& one : {checkpoints.trouble(), lost_models, reporter_.metrics_trouble(),
                                 coordinator_.matrix_trouble()}) {
    if (!one.empty()) troubles.push_back(one);
  }
  summary.set_trouble(Join(troubles, "; "));
}

}  // namespace muster
