// Workers that came, went or were lost in the middle of a run, in a person's words.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proto/events.pb.h"

namespace muster {

// "Lost rank 1 (pid 42) at step 120: its connection ended; others compute 4 slices; 1 worker now"
std::string ChangeLine(const events::MemberChange& change);

// Who computes how many slices at the end of a run, where that has changed; else "".
std::string SharesText(const events::Summary& summary);

// Of a summary: "1 lost and replaced (rank 1, step 120: killed by signal 9)". `ends`: as the
// launcher saw them, by pid.
std::vector<std::string> ChangesTexts(const events::Summary& summary,
                                      const std::map<int64_t, std::string>& ends);

}  // namespace muster
