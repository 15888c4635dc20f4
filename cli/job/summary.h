// The lines printed after a job: the summary, and how to resume the run. They depend only on the
// server's events and on the files of the run. Lines have no newline.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/job/run_dir.h"
#include "proto/events.pb.h"

namespace muster {

struct KeptRun {
  const RunDir& dir;
  bool by_hand = false;          // run by `muster server`
  bool on_gpus = false;          // some worker computes on a GPU
  bool could_use_bf16 = false;   // computed in FP32 on CPUs that have AVX512-BF16
  std::string crowd = "";        // see CrowdText
  const char* sample = "image";  // see SampleNoun
  int64_t classes = 0;           // that exclude one another; 0: none
  bool verbose = false;          // also where a step's time goes if nothing stands out
  std::string hosts = "";        // the options that name other hosts, "-H a:4,b:4", or ""
};

// Accuracy, speed, the parts of a step, the hash of the weights, and their files; at most 15 lines
// for a run without trouble. `ends` describes how lost workers ended, by pid, as the launcher saw
// it.
std::vector<std::string> SummaryLines(const events::Summary& summary, int workers,
                                      const KeptRun& run,
                                      const std::map<int64_t, std::string>& ends = {});

// Describes workers that were lost, were reset, or left: "1 worker lost and replaced (rank 1, step
// 120: killed by SIGKILL)".
std::vector<std::string> ChangesTexts(const events::Summary& summary,
                                      const std::map<int64_t, std::string>& ends);

// "the server was lost at step 120 (signal 9) and restarted once, from step 100"; "" if it was
// never lost.
std::string RestartsText(const events::Summary& summary);

// The row below the summary that names the trace file.
std::string TraceLine(const std::string& path, size_t spans, uint64_t dropped);

// How to resume a run that ended early. A server that died sent no summary, but may have left
// checkpoints.
std::string GoOnText(const std::optional<events::Summary>& summary, const KeptRun& run);

// Describes what a run could not save (summary.trouble), and what to do.
std::string TroubleText(const events::Summary& summary, const KeptRun& run);

}  // namespace muster
