// What is printed after a job. Pure functions; every line comes without its newline.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "launch/job/run_dir.h"
#include "proto/events.pb.h"

namespace muster {

// The server's summary: accuracy, speed, the parts of a step, the hash of the weights; then
// `files` (see FilesText in job_text.h), unless that is empty. `ends`: of workers that were lost,
// by pid, as the launcher saw them.
std::vector<std::string> SummaryLines(const events::Summary& summary, int workers, bool on_gpus,
                                      const RunDir& dir, const std::string& files,
                                      const std::map<int64_t, std::string>& ends = {});

}  // namespace muster
