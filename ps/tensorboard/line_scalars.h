// The scalars of a line of metrics.jsonl: as it is written, and as it is read again.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "proto/tensorboard.pb.h"

namespace muster {

// A tag that every interval has, and one of every evaluation of a set.
inline constexpr const char* kIntervalTag = "run/epoch";
inline constexpr const char* kTestLossTag = "loss/test";
inline constexpr const char* kValidationLossTag = "loss/validation";

// Which of these tags a line has, that of an interval or of an evaluation.
const char* TagOf(const nlohmann::ordered_json& line);
void AddScalars(tensorboard::Summary& summary, const nlohmann::ordered_json& line);

// By such a tag: the last step of which event files have a value; -1: none.
using LastSteps = std::map<std::string, int64_t>;

// Events of the intervals and evaluations in `metrics`, the text of metrics.jsonl, up to
// `last_step`, that come after the last ones that event files have.
std::vector<tensorboard::Event> LaterScalars(const std::string& metrics, int64_t last_step,
                                             const LastSteps& written);

}  // namespace muster
