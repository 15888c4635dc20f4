// What is printed after a job: the summary, and how the run continues. Pure functions of what the
// server said and of what is on the disk; every line comes without its newline.
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
  bool by_hand = false;  // it was `muster server`
  bool on_gpus = false;  // the workers compute there
};

// Accuracy, speed, the parts of a step, the hash of the weights, and where they are; at most 15
// lines for a run in which nothing went wrong. `ends`: how workers ended that were lost, by pid, as
// the launcher saw them.
std::vector<std::string> SummaryLines(const events::Summary& summary, int workers,
                                      const KeptRun& run,
                                      const std::map<int64_t, std::string>& ends = {});

// Workers that were lost, late or left: "1 lost and replaced (rank 1, step 120: killed by
// SIGKILL)".
std::vector<std::string> ChangesTexts(const events::Summary& summary,
                                      const std::map<int64_t, std::string>& ends);

// "the server was lost at step 120 (signal 9) and started again from step 100, 1 time"; "" if it
// never was.
std::string RestartsText(const events::Summary& summary);

// The row below the summary that says where the trace is.
std::string TraceLine(const std::string& path, size_t spans, uint64_t dropped);

// How a run that ended early continues. A server that died has said nothing, but may have written.
std::string GoOnText(const std::optional<events::Summary>& summary, const KeptRun& run);

// A run that came to its end could not write all that it should leave (summary.trouble): what was
// lost, and what to do.
std::string TroubleText(const events::Summary& summary, const KeptRun& run);

}  // namespace muster
