#include "cli/commands/arguments.h"

#include <fmt/core.h>

#include <utility>

#include "common/base/error.h"

namespace muster {
namespace {

// --trace-steps A-B, or A alone, as the two settings that it stands for.
std::pair<std::string, std::string> TraceSteps(const std::string& text) {
  const auto wrong = [&]() -> Error {
    return Error(ExitCode::kUsage,
                 "--trace-steps {}: expected A-B, the first and the last step to trace, counted "
                 "from 0 (20-29)",
                 text);
  };
  const auto number = [&](const std::string& digits) {
    if (digits.empty() || digits.size() > 15 ||
        digits.find_first_not_of("0123456789") != std::string::npos) {
      throw wrong();
    }
    return std::stoll(digits);
  };
  const size_t dash = text.find('-');
  const long long first = number(text.substr(0, dash));
  const long long last = dash == std::string::npos ? first : number(text.substr(dash + 1));
  if (last < first) throw wrong();
  return {std::to_string(first), std::to_string(last - first + 1)};
}

}  // namespace

std::vector<Setting> SettingsOf(const Arguments& arguments) {
  std::vector<Setting> settings;
  for (const std::string& text : arguments.set) settings.push_back(ParseSetting(text));
  // `given`: what was typed, where it stands for more than this value.
  auto shorthand = [&](const char* option, const char* path, const std::string& value,
                       const std::string& given = "") {
    if (value.empty()) return;
    const std::string origin = fmt::format("{} {}", option, given.empty() ? value : given);
    for (const Setting& other : settings) {
      if (other.path != path) continue;
      throw Error(ExitCode::kUsage, "{} and {} are the same setting: give one of them", origin,
                  other.origin);
    }
    settings.push_back({path, value, origin});
  };
  shorthand("--workers", "cluster.workers", arguments.workers);
  shorthand("--data", "data.dir", arguments.data);
  shorthand("--run-dir", "run.dir", arguments.run_dir);
  shorthand("--epochs", "run.epochs", arguments.epochs);
  shorthand("--steps", "run.steps", arguments.steps);
  shorthand("--seed", "run.seed", arguments.seed);
  shorthand("--devices", "worker.devices", arguments.devices);
  shorthand("--initial-weights", "run.initial_weights", arguments.initial_weights);
  if (!arguments.initial_weights.empty() && arguments.skip_mismatched) {
    shorthand("--skip-mismatched", "run.skip_mismatched", "true");
  }
  shorthand("--trace", "run.trace_file", arguments.trace);
  if (!arguments.trace_steps.empty()) {
    const auto [first, count] = TraceSteps(arguments.trace_steps);
    shorthand("--trace-steps", "run.trace_first_step", first, arguments.trace_steps);
    shorthand("--trace-steps", "run.trace_steps", count, arguments.trace_steps);
  }
  return settings;
}

}  // namespace muster
