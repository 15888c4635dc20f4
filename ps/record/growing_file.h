// A file that only grows: metrics.jsonl, or the records of run.events. What cannot be written is
// kept and written before what comes next.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/base/fd.h"
#include "common/base/retry.h"
#include "common/base/running_hash.h"
#include "proto/checkpoint.pb.h"

namespace muster {

// Used by one thread at a time.
class GrowingFile {
 public:
  // Receives warnings, on the thread that uses this object.
  using Warn = std::function<void(const std::string& message)>;

  // `path` may be empty: no file. `how`: further flags of open. `first`: where the part that grows
  // begins. Throws Error(kFailure) if the file cannot be created or opened.
  GrowingFile(std::string path, int how, int64_t first, Warn warn);

  // Cuts the file after `text`, which it begins with, so that `pending` comes next. Throws
  // Error(kFailure).
  void StartAt(std::string_view text, std::string pending);
  // Warns once if the file cannot be written, and once if it was removed.
  void Append(std::string_view text);
  // Retries after the interval of Retry, if something is pending.
  void TryAgain();
  // Disables retries from now on.
  void EndRetries() { retry_.End(); }
  // What the part that grows has now; "" if it cannot be read.
  std::string Read() const;
  // The state that a checkpoint at this moment saves.
  checkpoint::GrownFile Keep() const;
  // Why the file is not complete on the disk, or "".
  const std::string& trouble() const { return retry_.trouble(); }
  const std::string& path() const { return path_; }
  // -1 without a file.
  int fd() const { return fd_.get(); }

 private:
  void Write();
  void WarnIfRemoved();

  const std::string path_;
  const int64_t first_;
  const Warn warn_;
  UniqueFd fd_;
  int64_t bytes_ = 0;      // size of the part that grows
  RunningHash hash_;       // its hash
  std::string unwritten_;  // pending
  Retry retry_;
  bool removal_reported_ = false;
};

// Whether `text` begins with what a checkpoint has kept.
bool Continues(std::string_view text, const checkpoint::GrownFile& kept);

}  // namespace muster
