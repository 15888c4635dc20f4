// What the server reports to the launcher: one JSON object per line. The launcher shows it; it
// decides nothing by it that the processes' own ends do not decide. So every field may be missing.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace muster {

// The object in `line`; empty where the line is not a JSON object.
std::optional<nlohmann::json> ParseEvent(const std::string& line);

// A field, or what stands for its absence where it is missing or of another type.
std::string Text(const nlohmann::json& event, const char* key);
double Number(const nlohmann::json& event, const char* key);  // NaN
int64_t Whole(const nlohmann::json& event, const char* key, int64_t otherwise = -1);

// "progress", "log" and "evaluation" events. Numbers that are missing are NaN or -1.
struct Progress {
  int64_t step = -1, total_steps = -1;
  double epoch = NAN, epochs = NAN;
  double train_loss = NAN, train_accuracy = NAN;
  double test_loss = NAN, test_accuracy = NAN, test_top5_accuracy = NAN;
  double images_per_second = NAN, step_ms = NAN, waiting_share = NAN;
  double elapsed_s = NAN, eta_s = NAN;
  bool evaluating = false;
  int64_t blocks_done = -1, blocks_total = -1;  // of the evaluation
};

// Takes over the fields that `event` has and keeps the others.
void Update(Progress& progress, const nlohmann::json& event);

}  // namespace muster
