// status.json in the run directory: the current state of a run, for `muster top` and `muster runs`.
// PROTOCOL.md ("The status file") lists its fields.
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
  int64_t slices = 0;            // slices per batch
  double images_per_second = 0;  // the speed that its compute and input would allow
  RecentTimes::Parts parts;
  wire::StepTimes gpu;  // with the last readings of the GPU's sensors
  std::string state;    // "lost", "left", "joining", "late", "leaving"; "" if it takes part
};

struct RunStatus {
  std::string state;  // gathering, preparing, training, evaluating, completed, failed, interrupted
  events::Progress progress;
  double learning_rate = 0;
  // The last evaluation of a set.
  struct Evaluated {
    std::optional<double> accuracy;  // regression has none
    double loss = 0;
    int64_t step = 0;
  };
  std::optional<Evaluated> validated, tested;
  std::vector<RankStatus> ranks;
  std::optional<StragglerWatch::Slowest> slowest;
  std::string waits;  // what a stall waits for, or ""
  // The newest checkpoint on disk, and when the next one is due. Empty if checkpoints are disabled.
  struct Checkpoint {
    std::optional<int64_t> newest_step, next_step;
    std::optional<double> next_s;
  };
  std::optional<Checkpoint> checkpoint;
};

// Resources used by the server process.
struct ServerLoad {
  double cores = 0;  // mean since the last measurement
  int64_t resident_bytes = 0, peak_bytes = 0;
};

class LoadMeter {
 public:
  ServerLoad Measure();

 private:
  double wall_s_ = 0, cpu_s_ = 0;  // at the last measurement
};

// The contents of the file.
std::string StatusText(const RunStatus& status, const ServerLoad& load,
                       const ProcessIdentity& server);

// Owner: the recorder, whose writer thread calls Write.
class StatusFile {
 public:
  // `path` may be empty: no file.
  explicit StatusFile(std::string path) : path_(std::move(path)) {}

  bool wanted() const { return !path_.empty(); }
  // Replaces the file without syncing it. Errors are ignored, because metrics.jsonl in the same
  // directory reports them.
  void Write(const RunStatus& status);

 private:
  const std::string path_;
  const ProcessIdentity self_ = ThisProcess();
  LoadMeter load_;
};

}  // namespace muster
