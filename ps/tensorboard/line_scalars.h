// The scalars of a line of metrics.jsonl: as the line is told, and as it is read again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/events.pb.h"
#include "proto/tensorboard.pb.h"

namespace muster {

// A tag that every interval has, and one of every evaluation.
inline constexpr const char* kIntervalTag = "run/epoch";
inline constexpr const char* kTestAccuracyTag = "accuracy/test";

void AddInterval(tensorboard::Summary& summary, const events::Log& line);
void AddEvaluation(tensorboard::Summary& summary, const events::TestResult& test);

// Events of the intervals and evaluations in `metrics`, the text of metrics.jsonl, up to
// `last_step`, that come after the last ones that event files have (-1: they have none).
std::vector<tensorboard::Event> LaterScalars(const std::string& metrics, int64_t last_step,
                                             int64_t last_interval, int64_t last_evaluation);

}  // namespace muster
