// What the server tells the world: metrics.jsonl in the run directory, a JSON object per line, and
// events for the launcher (proto/events.proto).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/base/job_failure.h"
#include "proto/events.pb.h"
#include "ps/event_pipe.h"

namespace muster {

class Reporter {
 public:
  // `metrics_path` may be empty: no file. `event_fd` may be -1: no events; it becomes
  // non-blocking. Throws Error(kFailure) if the file cannot be created.
  Reporter(const std::string& metrics_path, int event_fd);
  ~Reporter();
  Reporter(const Reporter&) = delete;

  // Appends to metrics.jsonl, with `time` (UTC, ISO 8601) first. Throws Error(kFailure) when it
  // cannot be written (a full disk). A file that somebody has removed is a Warning, once: the run
  // may go on, and the launcher says at its end what is lost.
  void Metrics(const events::Log& line);
  void Metrics(const events::Evaluation& line);
  void Metrics(const events::Summary& summary);

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
  void Warning(const std::string& message);
  void Failure(const JobFailure& failure);
  void Saving();
  void Summary(events::Summary summary);
  void Beat();

 private:
  void Append(const nlohmann::ordered_json& line);
  void WarnIfRemoved();

  const std::string metrics_path_;
  int metrics_fd_ = -1;
  bool removal_reported_ = false;
  EventPipe events_;
};

}  // namespace muster
