// Where a run goes on from.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/checkpoint/list_checkpoints.h"
#include "proto/config.pb.h"
#include "ps/record/retention.h"

namespace muster {

struct ResumePoint {
  ChosenCheckpoint checkpoint;
  int64_t next_generation = 0;       // later than that of every checkpoint, damaged ones included
  std::vector<KeptCheckpoint> kept;  // the whole one and those before it, oldest first
  std::vector<std::string> notes;    // what may change bits
  // A replay is compared with these (replay.h), oldest first.
  std::vector<std::shared_ptr<const CheckpointReader>> compared_with;

  const checkpoint::State& state() const { return checkpoint.reader->state(); }
};

// The newest whole checkpoint of config.run.dir; the run may go on with this config. Throws Error:
// there is none, or a setting may not differ.
ResumePoint FindResumePoint(const config::Config& config);

// To do a run again from the first of these checkpoints on, and compare it with the others. Their
// files stay open, so the run may remove them meanwhile. Throws Error as above, and Error(kData) if
// one of them cannot be read.
ResumePoint FindReplay(const std::vector<std::string>& checkpoints, const config::Config& config);

// "the workers computed with "A" before, and do with "B" now"; "" if nothing of the kind is known.
std::string ArithmeticChange(const checkpoint::Arithmetic& before,
                             const checkpoint::Arithmetic& now);

}  // namespace muster
