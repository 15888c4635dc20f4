// metrics.jsonl in the run directory: a JSON object per line. A line that the disk does not take is
// kept, and written before the next one. A resumed run cuts off what its checkpoint does not know.
//
// Owner: the recorder. The loop's thread makes and cuts it; then its writing thread alone uses it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/fd.h"
#include "common/base/retry.h"
#include "common/base/running_hash.h"
#include "proto/checkpoint.pb.h"
#include "proto/events.pb.h"
#include "ps/record/kept_lines.h"

namespace muster {

class MetricsFile {
 public:
  // Takes what a person should know, in the thread that uses this.
  using Warn = std::function<void(const std::string& message)>;

  // `path` may be empty: no file. `resumed`: from the checkpoint of a run that is resumed, or null.
  // Throws Error(kFailure) if the file cannot be created, or opened.
  MetricsFile(std::string path, const checkpoint::Metrics* resumed, Warn warn);

  // Cuts the file of a resumed run to what it was at the checkpoint, so that it has every step
  // once. Lines of events stay: what happened has happened. If the file is not as the run left it,
  // `due` tells where it is cut, a warning says what it lacks, and what is cut off goes to
  // metrics-cut.jsonl. Throws Error(kFailure).
  struct Kept {
    std::vector<events::Restarted> restarts;  // of which the file tells
    std::string lines;                        // all, on the disk or not
  };
  Kept Cut(const DueLines& due);

  // Whole lines. Warns once of a file that cannot be written, and once of one that was removed.
  void Append(std::string_view lines);
  // If something is kept, and the interval of Retry has passed.
  void TryAgain();
  // What is appended from now on is not tried again.
  void EndRetries() { retry_.End(); }
  // What a checkpoint of this moment keeps.
  checkpoint::Metrics Keep() const;
  // Why lines are not on the disk; "" if all of them are.
  const std::string& trouble() const { return retry_.trouble(); }
  // For fsync; -1 without a file.
  int fd() const { return fd_.get(); }

 private:
  size_t FindCut(std::string_view text, const DueLines& due);
  void PutAside(std::string_view lines);
  void WriteUnwritten();
  void WarnIfRemoved();

  const std::string path_;
  const std::optional<checkpoint::Metrics> resumed_;
  const Warn warn_;
  UniqueFd fd_;
  int64_t bytes_ = 0;      // in the file
  RunningHash hash_;       // of them
  std::string unwritten_;  // what comes after them
  Retry retry_;
  bool removal_reported_ = false;
};

}  // namespace muster
