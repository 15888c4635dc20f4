// What the server tells the world: metrics.jsonl in the run directory, and events for the
// launcher, one JSON object per line each.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace muster {

class Reporter {
 public:
  // `metrics_path` may be empty: no file. `event_fd` may be -1: no events; it becomes
  // non-blocking. Throws Error(kFailure) if the file cannot be created.
  Reporter(const std::string& metrics_path, int event_fd);
  ~Reporter();
  Reporter(const Reporter&) = delete;

  // Appends to metrics.jsonl, with `time` (UTC, ISO 8601) first. Throws Error(kFailure) when it
  // cannot be written (a full disk). A file that somebody has removed is a "warning" event, once:
  // the run may go on, and the launcher says at its end what is lost.
  void Metrics(nlohmann::ordered_json line);

  enum class Priority {
    kProgress,  // dropped if the reader is slow
    kMust,      // waits up to a second for the reader
  };
  void Event(const char* name, nlohmann::ordered_json event, Priority priority = Priority::kMust);

 private:
  void WarnIfRemoved();

  const std::string metrics_path_;
  int metrics_fd_ = -1;
  bool removal_reported_ = false;
  int event_fd_;
  std::string unsent_;  // the rest of an event of which the pipe took a part
};

}  // namespace muster
