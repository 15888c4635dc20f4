// What the server tells the world: metrics.jsonl in the run directory, a JSON object per line, and
// events for the launcher (proto/events.proto).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "proto/checkpoint.pb.h"
#include "proto/events.pb.h"
#include "ps/event_pipe.h"
#include "ps/kept_lines.h"
#include "ps/restart_record.h"

namespace muster {

class Reporter {
 public:
  // `metrics_path` may be empty: no file. `event_fd` may be -1: no events; it becomes
  // non-blocking. `resumed`: of the checkpoint that a run goes on from. Throws Error(kFailure) if
  // the file cannot be created, or opened.
  Reporter(const std::string& metrics_path, int event_fd,
           const checkpoint::Metrics* resumed = nullptr);
  ~Reporter();
  Reporter(const Reporter&) = delete;

  // Appends to metrics.jsonl, with `time` (UTC, ISO 8601) first. What cannot be written (a full
  // disk) is kept, and tried again with the next line. That, and a file that somebody has removed,
  // is a Warning, once: the run may go on, and the launcher says at its end what is lost.
  void Metrics(const events::Log& line);
  void Metrics(const events::Evaluation& line);
  void Metrics(const events::Summary& summary);
  void Metrics(const events::MemberChange& change);
  void Metrics(const events::SharesChanged& change);

  // The run that was resumed goes on indeed: cuts metrics.jsonl to what it was then, so that it has
  // every step once. Lines of events stay: what happened has happened. If the file is not as the
  // run left it, `due` tells where it is cut, a Warning what it lacks, and what is cut off goes to
  // metrics-cut.jsonl. Throws Error(kFailure).
  void CutMetrics(const DueLines& due);
  // All lines so far, on the disk or not.
  std::string AllLines() const;
  // What of metrics.jsonl belongs to this moment.
  checkpoint::Metrics KeepMetrics() const;
  // Servers of this run that were lost before this one, of which metrics.jsonl does not tell yet.
  void WereLost(std::vector<LostServer> losses) { losses_ = std::move(losses); }
  // After CutMetrics: the run goes on from this step. Tells of them.
  void GoOn(int64_t from_step);
  // All of the run.
  const std::vector<events::Restarted>& restarts() const { return restarts_; }
  // For fsync; -1 without a file.
  int metrics_fd() const { return metrics_fd_; }
  // Why lines of metrics.jsonl are not on the disk; "" if all of them are.
  const std::string& metrics_trouble() const { return metrics_trouble_; }

  // Events. Those of a moment are dropped where the launcher is slow: Beat, Progress.
  void Listening(const std::string& endpoint);
  void Joined(uint32_t rank, const std::string& message);
  void Refused(const std::string& message);
  void Waiting(const std::vector<uint32_t>& missing, double elapsed_s);
  void Started(events::Started started);
  void Progress(events::Progress line);
  void Log(events::Log line);
  void Evaluation(events::Evaluation line);
  void SkippedStep(events::SkippedStep step);
  void MemberChanged(events::MemberChange change);
  void SharesChanged(events::SharesChanged change);
  void Warning(const std::string& message);
  void Failure(const JobFailure& failure);
  // State and weights are being written, or will be: once a second until they are.
  void Saving(int64_t step);
  void Summary(events::Summary summary);
  void Beat();

 private:
  void Append(const nlohmann::ordered_json& line);
  void Open();
  int64_t FindCut(const DueLines& due);
  void PutAside(std::string_view lines);
  void WriteUnwritten();
  void WarnIfRemoved();

  const std::string metrics_path_;
  const std::optional<checkpoint::Metrics> resumed_;
  int metrics_fd_ = -1;
  int64_t metrics_bytes_ = 0;  // in the file
  RunningHash metrics_hash_;   // of them
  std::string unwritten_;      // what comes after them
  std::string metrics_trouble_;
  bool removal_reported_ = false;
  std::vector<LostServer> losses_;
  std::vector<events::Restarted> restarts_;
  EventPipe events_;
};

}  // namespace muster
