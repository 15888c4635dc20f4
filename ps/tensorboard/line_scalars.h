// Converts lines of metrics.jsonl to scalars, both new lines and lines read from the file.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "proto/tensorboard.pb.h"

namespace muster {

// Tags that are present in every interval and in every evaluation of a set.
inline constexpr const char* kIntervalTag = "run/epoch";
inline constexpr const char* kTestLossTag = "loss/test";
inline constexpr const char* kValidationLossTag = "loss/validation";

// The tag above that belongs to this line.
const char* TagOf(const nlohmann::ordered_json& line);
void AddScalars(tensorboard::Summary& summary, const nlohmann::ordered_json& line);

// For each tag, the last step for which the event files have a value; -1: none.
using LastSteps = std::map<std::string, int64_t>;

// The intervals and evaluations in `metrics` (the text of metrics.jsonl) up to `last_step` that are
// not in the event files yet.
std::vector<tensorboard::Event> LaterScalars(const std::string& metrics, int64_t last_step,
                                             const LastSteps& written);

}  // namespace muster
