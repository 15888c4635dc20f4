// The status of a run in run.events (common/events/event_log.h), for `muster top` and `muster
// runs`.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/fd.h"
#include "common/base/process.h"
#include "proto/events.pb.h"

namespace muster {

// Measures the resources used by this process.
class LoadMeter {
 public:
  void Put(events::Status::Server& server);

 private:
  double wall_s_ = 0, cpu_s_ = 0;  // at the last measurement
};

// Owner: the recorder, whose writer thread calls Write.
class StatusPage {
 public:
  // `path` may be empty: no file. Otherwise the file exists. Throws Error(kFailure) if it cannot be
  // opened.
  explicit StatusPage(const std::string& path);

  bool wanted() const { return fd_.valid(); }
  // Fills in number, time and server. Overwrites a page without syncing it. Errors are ignored,
  // because metrics.jsonl in the same directory reports them. On a full disk only the first
  // statuses fail.
  void Write(events::Status status);

 private:
  UniqueFd fd_;
  int64_t number_ = 0;
  bool has_both_ = false;  // this process has written both pages
  const ProcessIdentity self_ = ThisProcess();
  LoadMeter load_;
};

}  // namespace muster
