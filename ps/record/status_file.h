// status.json in the run directory: what a run does at this moment, for `muster top` and `muster
// runs`. PROTOCOL.md ("The status file") has its fields.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/process.h"
#include "proto/events.pb.h"
#include "ps/record/recent_times.h"
#include "ps/record/straggler.h"

namespace muster {

struct RankStatus {
  std::string host;
  int64_t pid = 0;
  int64_t slices = 0;            // of a batch
  double images_per_second = 0;  // what its compute and input would allow
  RecentTimes::Parts parts;
  std::string state;  // "lost", "left", "joining", "late", "leaving"; "" where it takes part
};

struct RunStatus {
  std::string state;  // gathering, preparing, training, evaluating, completed, failed, interrupted
  events::Progress progress;
  double learning_rate = 0;
  // The last evaluation of a set.
  struct Evaluated {
    double accuracy = 0, loss = 0;  // IsAccuracy says whether there is an accuracy
    int64_t step = 0;
  };
  std::optional<Evaluated> validated, tested;
  std::vector<RankStatus> ranks;
  std::optional<StragglerWatch::Slowest> slowest;
  std::string waits;  // what a stall waits for, or ""
  // With checkpoints: the newest on the disk, and when the next one falls due.
  struct Checkpoint {
    std::optional<int64_t> newest_step, next_step;
    std::optional<double> next_s;
  };
  std::optional<Checkpoint> checkpoint;
};

// What the server's process uses.
struct ServerLoad {
  double cores = 0;  // mean since the last one
  int64_t resident_bytes = 0, peak_bytes = 0;
};

class LoadMeter {
 public:
  ServerLoad Measure();

 private:
  double wall_s_ = 0, cpu_s_ = 0;  // at the last one
};

// As it is written.
std::string StatusText(const RunStatus& status, const ServerLoad& load,
                       const ProcessIdentity& server);

// Owner: the recorder; its writing thread alone writes.
class StatusFile {
 public:
  // `path` may be empty: no file.
  explicit StatusFile(std::string path) : path_(std::move(path)) {}

  bool wanted() const { return !path_.empty(); }
  // Replaces the file. It is no durable record, so it is not synced; one that cannot be written is
  // no reason to say anything: metrics.jsonl, beside it, does.
  void Write(const RunStatus& status);

 private:
  const std::string path_;
  const ProcessIdentity self_ = ThisProcess();
  LoadMeter load_;
};

}  // namespace muster
