// Who came and went in the middle of a run: told as it happens, in the log, in metrics.jsonl and to
// the launcher, and once more at the end.
//
// Owner: the coordinator. Used in the loop's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/events.pb.h"
#include "ps/reporter.h"

namespace muster {

class MemberChanges {
 public:
  explicit MemberChanges(Reporter& reporter) : reporter_(reporter) {}

  void Tell(events::MemberChange change);
  // What the summary says of them.
  void Put(events::Summary& summary) const;

 private:
  static constexpr size_t kMostKept = 50;

  Reporter& reporter_;
  std::vector<events::MemberChange> first_;
  int64_t lost_ = 0, joined_ = 0, fenced_ = 0, left_ = 0;
};

// "rank 1 (host a, pid 42) was lost at step 120: its connection ended; others compute 4 slices
// again; 3 workers go on"
std::string TextOf(const events::MemberChange& change);

}  // namespace muster
