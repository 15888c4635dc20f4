// Judges a machine and its GPUs, and whether a job would run there and get the GPUs that it
// requests. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "cli/data/count_samples.h"
#include "cli/doctor/facts.h"
#include "cli/job/memory_check.h"

namespace muster {

// One line of the report of `muster doctor`.
struct Finding {
  enum class Grade {
    kOk,
    kNote,   // a run would work, but not as well as it could
    kWrong,  // a run would fail
  };
  Grade grade = Grade::kOk;
  std::string subject;  // a word or two
  std::string found;
  std::string remedy;  // what to do; "" with kOk
};

using Findings = std::vector<Finding>;

Findings ExamineMachine(const MachineFacts& facts);

// The requirements of a job.
struct JobNeeds {
  LeastMemory memory;
  unsigned workers = 1;
  unsigned worker_threads = 1;
  bool over_tcp = false;              // cluster.transport
  std::string instruction_set_error;  // error of server.instruction_set, or ""
  DataCount data;
  std::string data_dir;         // "": the data are synthetic
  bool data_is_listed = false;  // the data are photos that were listed, but not decoded
};
Findings ExamineJob(const JobNeeds& needs, const MachineFacts& facts);

Findings ExamineGpus(const GpuFacts& facts);

}  // namespace muster
