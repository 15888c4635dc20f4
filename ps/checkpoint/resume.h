// Where a run goes on from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/checkpoint/list_checkpoints.h"
#include "proto/config.pb.h"
#include "ps/checkpoint/retention.h"

namespace muster {

struct ResumePoint {
  ChosenCheckpoint checkpoint;
  int64_t next_generation = 0;       // later than that of every checkpoint, damaged ones included
  std::vector<KeptCheckpoint> kept;  // the whole one and those before it, oldest first
  std::vector<std::string> notes;    // what may change bits

  const checkpoint::State& state() const { return checkpoint.reader->state(); }
};

// The newest whole checkpoint of config.run.dir; the run may go on with this config. Throws Error:
// there is none, or a setting may not differ.
ResumePoint FindResumePoint(const config::Config& config);

}  // namespace muster
