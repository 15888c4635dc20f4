// What a summary says of the files of weights.
#pragma once

#include <string>
#include <vector>

#include "launch/job/run_dir.h"
#include "proto/events.pb.h"

namespace muster {

// A line for each file that the server has written, with the step that it is of.
std::vector<std::string> ModelTexts(const events::Summary& summary, const RunDir& dir);

}  // namespace muster
