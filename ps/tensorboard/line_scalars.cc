#include "ps/tensorboard/line_scalars.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <optional>
#include <span>
#include <string_view>

#include "common/base/json.h"
#include "common/base/text.h"
#include "ps/tensorboard/summaries.h"

namespace muster {
namespace {

using Json = nlohmann::ordered_json;

std::optional<double> Number(const Json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

// Parses "2026-01-31T12:00:05.123Z"; 0 if malformed.
double UnixTimeOf(const Json& line) {
  const auto found = line.find("time");
  if (found == line.end() || !found->is_string()) return 0;
  std::tm utc{};
  double seconds = 0;
  if (std::sscanf(found->get_ref<const std::string&>().c_str(), "%4d-%2d-%2dT%2d:%2d:%lfZ",
                  &utc.tm_year, &utc.tm_mon, &utc.tm_mday, &utc.tm_hour, &utc.tm_min,
                  &seconds) != 6) {
    return 0;
  }
  utc.tm_year -= 1900;
  utc.tm_mon -= 1;
  return static_cast<double>(::timegm(&utc)) + seconds;
}

// A key of a line and the tag of its scalar.
struct LineScalar {
  const char *key, *tag;
};
constexpr LineScalar kInterval[] = {{"train_loss", "loss/train"},
                                    {"train_accuracy", "accuracy/train"},
                                    {"learning_rate", "run/learning_rate"},
                                    {"loss_scale", "run/loss_scale"},
                                    {"images_per_second", "run/images_per_second"},
                                    {"step_ms", "run/step_ms"},
                                    {"gpu_memory_mb", "run/gpu_memory_mb"},
                                    {"gpu_utilization", "run/gpu_utilization"},
                                    {"gpu_temperature_c", "run/gpu_temperature_c"},
                                    {"gpu_power_w", "run/gpu_power_w"},
                                    {"epoch", kIntervalTag}};
constexpr LineScalar kEvaluation[] = {{"test_loss", kTestLossTag},
                                      {"test_accuracy", "accuracy/test"},
                                      {"test_top5_accuracy", "accuracy/test_top5"},
                                      {"validation_loss", kValidationLossTag},
                                      {"validation_accuracy", "accuracy/validation"},
                                      {"validation_top5_accuracy", "accuracy/validation_top5"}};

// The same for the named scalars of programs; the scalar's name follows the tag.
constexpr LineScalar kNamed[] = {
    {"scalars", "train/"}, {"test_scalars", "test/"}, {"validation_scalars", "validation/"}};

}  // namespace

const char* TagOf(const Json& line) {
  if (line.contains("test_accuracy")) return kTestLossTag;
  return line.contains("validation_accuracy") ? kValidationLossTag : kIntervalTag;
}

void AddScalars(tensorboard::Summary& summary, const Json& line) {
  const bool interval = TagOf(line) == std::string_view(kIntervalTag);
  for (const LineScalar& one :
       interval ? std::span<const LineScalar>(kInterval) : std::span(kEvaluation)) {
    if (const auto value = Number(line, one.key)) AddScalar(summary, one.tag, *value);
  }
  // The line of an evaluation repeats the scalars of an interval.
  for (const LineScalar& one :
       interval ? std::span(kNamed).first(1) : std::span(kNamed).subspan(1)) {
    const auto scalars = line.find(one.key);
    if (scalars == line.end() || !scalars->is_object()) continue;
    for (const auto& [name, value] : scalars->items()) {
      if (value.is_number()) AddScalar(summary, one.tag + name, value.get<double>());
    }
  }
}

std::vector<tensorboard::Event> LaterScalars(const std::string& metrics, int64_t last_step,
                                             const LastSteps& written) {
  std::vector<tensorboard::Event> events;
  const int64_t last_evaluation =
      std::max(written.at(kValidationLossTag), written.at(kTestLossTag));
  std::string_view rest = metrics;
  while (!rest.empty()) {  // from the end, because only a few of the last lines are needed
    rest.remove_suffix(rest.ends_with('\n') ? 1 : 0);
    const size_t begin = rest.rfind('\n') + 1;  // 0 for the first line
    const Json line = ParseOrderedJson(rest.substr(begin));
    rest.remove_suffix(rest.size() - begin);
    if (!line.is_object() || line.contains("event") || line.contains("final")) continue;
    const int64_t step = WholeNumberOf(Number(line, "step").value_or(-1)).value_or(-1);
    // A step may have a line for the interval and one for the evaluation of each set.
    if (step < written.at(kIntervalTag) && step < last_evaluation) break;
    if (step > last_step || step <= written.at(TagOf(line))) continue;
    tensorboard::Event event;
    event.set_step(step);
    event.set_wall_time(UnixTimeOf(line));
    AddScalars(*event.mutable_summary(), line);
    if (event.summary().value_size() > 0) events.push_back(std::move(event));
  }
  std::ranges::reverse(events);
  return events;
}

}  // namespace muster
