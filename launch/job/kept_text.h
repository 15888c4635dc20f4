// What is said at the end of what a run has left on the disk, and how it goes on from there.
// Nothing is advised that would not work.
#pragma once

#include <optional>
#include <string>

#include "launch/job/run_dir.h"
#include "proto/events.pb.h"

namespace muster {

struct KeptRun {
  const RunDir& dir;
  bool by_hand = false;  // it was `muster server`
  bool on_gpus = false;  // the workers compute there
};

// How a run that ended early goes on. A server that died has said nothing, but may have written.
std::string GoOnText(const std::optional<events::Summary>& summary, const KeptRun& run);

// A run that came to its end could not write all that it should leave (summary.trouble): what was
// lost, and what mends it.
std::string TroubleText(const events::Summary& summary, const KeptRun& run);

}  // namespace muster
