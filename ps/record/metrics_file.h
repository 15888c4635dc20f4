// metrics.jsonl in the run directory: one JSON object per line. A line that cannot be written is
// kept and written before the next one. A resumed run truncates the file to the state of its
// checkpoint.
//
// Owner: the recorder. The loop thread creates and truncates it; then only the recorder's writer
// thread uses it.
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
  // Receives warnings, on the thread that uses this object.
  using Warn = std::function<void(const std::string& message)>;

  // `path` may be empty: no file. `resumed`: from the checkpoint of a resumed run, or null. Throws
  // Error(kFailure) if the file cannot be created or opened.
  MetricsFile(std::string path, const checkpoint::GrownFile* resumed, Warn warn);

  // Truncates the file of a resumed run to its state at the checkpoint, so that each step appears
  // once. Event lines stay, because the events did happen; until they are in the file again,
  // metrics-events.jsonl has them. If the file was changed, `due` determines where to cut, a
  // warning lists what is missing, and removed lines go to metrics-cut.jsonl. Throws
  // Error(kFailure).
  struct Kept {
    std::vector<events::Restarted> restarts;  // recorded in `lines`
    std::string lines;                        // all lines, whether on disk or not
  };
  Kept Cut(const DueLines& due);

  // Appends whole lines. Warns once if the file cannot be written, and once if it was removed.
  void Append(std::string_view lines);
  // Retries after the interval of Retry, if lines are pending.
  void TryAgain();
  // Disables retries from now on.
  void EndRetries() { retry_.End(); }
  // The state that a checkpoint at this moment saves.
  checkpoint::GrownFile Keep() const;
  // Why lines are not on disk, or "".
  const std::string& trouble() const { return retry_.trouble(); }
  // The file descriptor, for fsync; -1 without a file.
  int fd() const { return fd_.get(); }

 private:
  size_t FindCut(std::string_view text, const DueLines& due);
  void PutAside(std::string_view lines);
  void KeepEvents(std::string_view kept, std::string_view removed);
  void RemoveEventsFile();
  std::string EventsPath() const;
  void WriteUnwritten();
  void WarnIfRemoved();

  const std::string path_;
  const std::optional<checkpoint::GrownFile> resumed_;
  const Warn warn_;
  UniqueFd fd_;
  int64_t bytes_ = 0;      // size of the file
  RunningHash hash_;       // hash of the file
  std::string unwritten_;  // pending lines
  Retry retry_;
  bool removal_reported_ = false;
  bool has_events_file_ = false;
};

}  // namespace muster
