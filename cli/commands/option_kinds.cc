#include "cli/commands/option_kinds.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "common/base/join.h"

namespace muster {

// CLI::Range would speak of values "not in range", and take -1 for a large number.
CLI::Validator WholeNumber(uint64_t least, uint64_t most) {
  return {[=](const std::string& text) {
            uint64_t value = 0;
            const char* const end = text.data() + text.size();
            const auto [stop, error] = std::from_chars(text.data(), end, value);
            const bool ok = error == std::errc() && stop == end && least <= value && value <= most;
            return ok ? ""
                      : fmt::format("expected a whole number from {} to {}, got {}", least, most,
                                    text.empty() ? "nothing" : text);
          },
          ""};
}

// CLI::IsMember would speak of a set.
CLI::Validator OneOf(const std::vector<std::string>& names) {
  return {[=](const std::string& text) {
            const bool known = std::ranges::find(names, text) != names.end();
            return known ? "" : fmt::format("expected {}, got {}", Join(names, ", "), text);
          },
          ""};
}

CLI::Validator SomeText() {
  return {[](const std::string& text) { return text.empty() ? "expected a value, got \"\"" : ""; },
          ""};
}

CLI::Option* AddConfigArguments(CLI::App& command, Arguments& arguments) {
  CLI::Option* const config =
      command.add_option("CONFIG", arguments.config, "Config file (configs/*.txtpb)");
  config->required()->type_name("FILE");
  AddSettings(command, arguments, "Any setting of the config, such as run.seed=2; may be repeated");
  return config;
}

// A longer type would leave no room for the text beside it.
CLI::Option* AddSettings(CLI::App& command, Arguments& arguments, const char* text) {
  return command.add_option("--set", arguments.set, text)
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

void AddOption(CLI::App& command, const char* name, std::string& value, const char* type,
               const char* text) {
  // An empty one is a variable of the shell's that was not set, and never meant.
  command.add_option(name, value, text)->type_name(type)->check(SomeText());
}

CLI::Option* AddSkipMismatched(CLI::App& command, Arguments& arguments) {
  return command.add_flag(
      "--skip-mismatched", arguments.skip_mismatched,
      "Leave out variables that do not fit, such as a new last layer's, and say "
      "which; they start anew");
}

// --wait and --watch: with a number, or alone for the usual one, of which CLI11 says "true" or
// nothing.
void AddOptionalNumber(CLI::App& command, const char* name, std::optional<double>& value,
                       double usual, double least, double most, const char* type,
                       const char* text) {
  const auto alone = [](const std::string& typed) { return typed.empty() || typed == "true"; };
  command
      .add_option_function<std::string>(
          name,
          [&value, usual, alone](const std::string& typed) {
            value = alone(typed) ? usual : std::strtod(typed.c_str(), nullptr);
          },
          text)
      ->type_name(type)
      ->expected(0, 1)
      ->check([=](const std::string& typed) -> std::string {
        char* end = nullptr;
        const double number = std::strtod(typed.c_str(), &end);
        if (alone(typed) || (*end == '\0' && least <= number && number <= most)) return "";
        return fmt::format("expected a number from {:g} to {:g}, got {}", least, most, typed);
      });
}

void AddWait(CLI::App& command, Arguments& arguments) {
  AddOptionalNumber(command, "--wait", arguments.wait_minutes, 1440, 0.01, 100'000, "MINUTES",
                    "Wait in turn for cards to come free, so long (alone: a day)");
}

}  // namespace muster
