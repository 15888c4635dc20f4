// Where a run resumes.
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
  int64_t next_generation = 0;       // greater than that of any checkpoint, including damaged ones
  std::vector<KeptCheckpoint> kept;  // the chosen checkpoint and those before it, oldest first
  std::vector<std::string> notes;    // differences that may change bits
  // The checkpoints that a replay compares (replay.h), oldest first.
  std::vector<std::shared_ptr<const CheckpointReader>> compared_with;

  const checkpoint::State& state() const { return checkpoint.reader->state(); }
};

// The newest intact checkpoint in config.run.dir. Throws Error if there is none, or if a changed
// setting prevents resuming.
ResumePoint FindResumePoint(const config::Config& config);

// Prepares a replay from the first of these checkpoints. Keeps their files open, so the run may
// remove them meanwhile. Throws Error as above, and Error(kData) if a checkpoint cannot be read.
ResumePoint FindReplay(const std::vector<std::string>& checkpoints, const config::Config& config);

// "the workers computed with "A" before and with "B" now", or "" if equal or unknown.
std::string ArithmeticChange(const checkpoint::Arithmetic& before,
                             const checkpoint::Arithmetic& now);

}  // namespace muster
