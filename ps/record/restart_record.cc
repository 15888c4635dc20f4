#include "ps/record/restart_record.h"

#include <charconv>
#include <chrono>
#include <cmath>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/text.h"

namespace muster {
namespace {

LostServer ParseLoss(const std::string& argument) {
  const size_t first = argument.find(','), second = argument.find(',', first + 1);
  LostServer loss;
  int64_t step = 0;
  const auto read = [&](size_t from, size_t to, auto& number) {
    const char* const end = argument.data() + to;
    const auto [stop, error] = std::from_chars(argument.data() + from, end, number);
    return error == std::errc() && stop == end;
  };
  if (second == std::string::npos || !read(0, first, step) || !read(first + 1, second, loss.at)) {
    throw Error(ExitCode::kUsage, "--lost {}: expected STEP,SECONDS,CAUSE", argument);
  }
  if (step >= 0) loss.step = step;
  loss.cause = argument.substr(second + 1);
  return loss;
}

// Reads a line from MetricsLine; a value of the wrong type counts as missing.
events::Restarted RestartOf(const nlohmann::json& line) {
  events::Restarted restarted;
  const auto number = [&](const char* key) {
    const auto found = line.find(key);
    return found != line.end() && found->is_number() ? std::optional(found->get<double>())
                                                     : std::nullopt;
  };
  if (const auto step = WholeNumberOf(number("lost_at_step").value_or(NAN))) {
    restarted.set_lost_at_step(*step);
  }
  if (line.contains("cause") && line["cause"].is_string()) restarted.set_cause(line["cause"]);
  restarted.set_from_step(WholeNumberOf(number("from_step").value_or(0)).value_or(0));
  restarted.set_seconds(number("seconds").value_or(0));
  return restarted;
}

}  // namespace

std::vector<LostServer> ParseLosses(const std::vector<std::string>& arguments) {
  std::vector<LostServer> losses;
  losses.reserve(arguments.size());
  for (const std::string& argument : arguments) losses.push_back(ParseLoss(argument));
  return losses;
}

events::Restarted RestartAfter(const LostServer& loss, int64_t from_step) {
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  events::Restarted restarted;
  if (loss.step) restarted.set_lost_at_step(*loss.step);
  restarted.set_cause(loss.cause);
  restarted.set_from_step(from_step);
  restarted.set_seconds(now.count() - loss.at);
  return restarted;
}

MetricsEvents ReadMetricsEvents(std::string_view text) {
  MetricsEvents read;
  size_t at = 0;
  for (size_t end; (end = text.find('\n', at)) != std::string_view::npos; at = end + 1) {
    const std::string_view one = text.substr(at, end - at);
    if (one.find("\"event\"") == std::string_view::npos) continue;
    const nlohmann::json line = ParseJson(one);
    if (!line.is_object() || !line.contains("event")) continue;
    if (line["event"] == kServerRestarted) read.restarts.push_back(RestartOf(line));
    read.lines.emplace_back(text.substr(at, end + 1 - at));
  }
  return read;
}

}  // namespace muster
