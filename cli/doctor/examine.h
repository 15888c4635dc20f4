// Judges what a machine is like, and whether a job would run on it. Pure functions.
#pragma once

#include "cli/data/count_samples.h"
#include "cli/doctor/finding.h"
#include "cli/doctor/machine_facts.h"
#include "cli/job/memory_check.h"

namespace muster {

Findings ExamineMachine(const MachineFacts& facts);

// What a job needs of it.
struct JobNeeds {
  LeastMemory memory;
  unsigned workers = 1;
  unsigned worker_threads = 1;
  bool over_tcp = false;              // cluster.transport
  std::string instruction_set_error;  // of server.instruction_set, or ""
  DataCount data;
  std::string data_dir;  // "": it reads no files
};
Findings ExamineJob(const JobNeeds& needs, const MachineFacts& facts);

}  // namespace muster
