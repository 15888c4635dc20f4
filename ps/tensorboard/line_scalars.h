// The scalars of a line of metrics.jsonl: as the line is told, and as it is read again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/events.pb.h"
#include "proto/tensorboard.pb.h"

namespace muster {

// A tag that every interval has, and one of every evaluation of a set.
inline constexpr const char* kIntervalTag = "run/epoch";
inline constexpr const char* kTestLossTag = "loss/test";
inline constexpr const char* kValidationLossTag = "loss/validation";

void AddInterval(tensorboard::Summary& summary, const events::Log& line);
// `set`: "test" or "validation".
void AddEvaluation(tensorboard::Summary& summary, const std::string& set,
                   const events::Scores& scores);

// Of intervals, and of evaluations of either set; -1: there are none.
struct LastSteps {
  int64_t interval = -1, validation = -1, test = -1;
};

// Events of the intervals and evaluations in `metrics`, the text of metrics.jsonl, up to
// `last_step`, that come after the last ones that event files have.
std::vector<tensorboard::Event> LaterScalars(const std::string& metrics, int64_t last_step,
                                             const LastSteps& written);

}  // namespace muster
