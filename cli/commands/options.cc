#include "cli/commands/options.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "cli/text/console.h"
#include "cli/view/run_reader.h"
#include "common/base/error.h"
#include "common/base/leading_zero.h"
#include "common/base/text.h"
#include "common/config/nearest_name.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// Parses --trace-steps A-B, or A for one step. Returns the first step and the number of steps.
std::pair<std::string, std::string> TraceSteps(const std::string& text) {
  const std::vector<std::string> found = FirstMatch("^([0-9]{1,15})(-([0-9]{1,15}))?$", text);
  if (!found.empty() && (HasLeadingZero(found[1]) || HasLeadingZero(found[3]))) {
    throw Error(ExitCode::kUsage, "--trace-steps {}: {}", text, kLeadingZero);
  }
  const int64_t first = found.empty() ? -1 : std::stoll(found[1]);
  const int64_t last = found.empty() || found[3].empty() ? first : std::stoll(found[3]);
  if (first < 0 || last < first) {
    throw Error(ExitCode::kUsage,
                "--trace-steps {}: expected A-B, the first and the last step to trace, counted "
                "from 0, such as 20-29",
                text);
  }
  return {std::to_string(first), std::to_string(last - first + 1)};
}

// A config in the same folder that was probably meant, or "".
std::string SimilarConfig(const fs::path& missing) {
  constexpr const char* kSuffix = ".txtpb";
  const fs::path folder = missing.parent_path(), name = missing.filename();
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, ignored)) {
    const fs::path other = entry.path().filename();
    if (other.extension() != kSuffix) continue;
    if (other.stem() == name || other.stem() == name.stem()) return folder / other;
    names.push_back(other.stem());
  }
  const std::string nearest = NearestName(name.stem(), names);
  return nearest.empty() ? "" : folder / (nearest + kSuffix);
}

}  // namespace

std::string RunNamed(const std::string& typed) {
  std::error_code ignored;
  if (typed != kLatest || fs::exists(fs::symlink_status(typed, ignored))) return typed;
  std::vector<std::string> troubles;
  const std::vector<RunRecord> runs =
      fs::is_directory("runs", ignored) ? FindRuns("runs", troubles) : std::vector<RunRecord>();
  if (runs.empty()) {
    throw Error(ExitCode::kUsage,
                "{}: expected a run below the folder runs of the current folder, found none: name "
                "a run directory",
                kLatest);
  }
  PrintError(fmt::format("muster: {} is {}\n", kLatest, runs.back().dir));
  return runs.back().dir;
}

std::string FullName(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return (parent != nullptr ? FullName(*parent) + " " : "") + command.get_name();
}

void RefuseBehind(const CLI::App& command, const std::vector<std::string>& behind) {
  if (behind.empty()) return;
  throw Error(ExitCode::kUsage, "--: expected no more arguments, got {} (see {} --help)", behind[0],
              FullName(command));
}

fs::path ProgramFolder() { return fs::read_symlink("/proc/self/exe").parent_path(); }

std::string Sibling(const std::string& name) { return ProgramFolder() / name; }

std::string FindConfig(const std::string& name, const fs::path& program_folder) {
  std::error_code ignored;
  if (name.empty() || fs::path(name).is_absolute() || fs::exists(name, ignored)) return name;
  const fs::path prefix = program_folder.parent_path();
  for (const fs::path& folder : {prefix, prefix / "share/muster"}) {
    if (fs::is_regular_file(folder / name, ignored)) return (folder / name).string();
  }
  return name;
}

// Unlike CLI::Range, this reports the limits plainly and does not read -1 as a large number.
CLI::Validator WholeNumber(uint64_t least, uint64_t most) {
  return {[=](const std::string& text) {
            if (HasLeadingZero(text)) return LeadingZeroTrouble(text);
            uint64_t value = 0;
            const char* const end = text.data() + text.size();
            const auto [stop, error] = std::from_chars(text.data(), end, value);
            const bool ok = error == std::errc() && stop == end && least <= value && value <= most;
            return ok ? std::string()
                      : fmt::format("expected a whole number from {} to {}, got {}", least, most,
                                    text.empty() ? "nothing" : text);
          },
          ""};
}

// Unlike CLI::IsMember, this does not mention a set in its message.
CLI::Validator OneOf(const std::vector<std::string>& names) {
  return {[=](const std::string& text) {
            const bool known = std::ranges::find(names, text) != names.end();
            return known ? "" : fmt::format("expected {}, got {}", Join(names, ", "), text);
          },
          ""};
}

// An empty value usually comes from an unset shell variable.
CLI::Validator SomeText() {
  return {[](const std::string& text) { return text.empty() ? "expected a value, got \"\"" : ""; },
          ""};
}

CLI::Option* AddOption(CLI::App& command, const char* name, std::string& value, const char* type,
                       const char* text) {
  return command.add_option(name, value, text)->type_name(type)->check(SomeText());
}

// CLI11 skips the checks for an empty value, so a missing value is represented as "alone".
void AddOptionalNumber(CLI::App& command, const char* name, std::optional<double>& value,
                       double usual, double least, double most, const char* type,
                       const char* text) {
  const auto alone = [](const std::string& typed) { return typed == "alone"; };
  command
      .add_option_function<std::string>(
          name,
          [&value, name, usual, alone](const std::string& typed) {
            if (typed.empty()) throw CLI::ValidationError(name, "expected a value, got \"\"");
            value = alone(typed) ? usual : std::strtod(typed.c_str(), nullptr);
          },
          text)
      ->option_text(type)
      ->default_str("alone")
      ->expected(0, 1)
      ->check([=](const std::string& typed) -> std::string {
        if (HasLeadingZero(typed)) return LeadingZeroTrouble(typed);
        char* end = nullptr;
        const double number = std::strtod(typed.c_str(), &end);
        if (alone(typed) || (*end == '\0' && least <= number && number <= most)) return "";
        return fmt::format("expected a number from {:g} to {:g}, got {}", least, most, typed);
      });
}

void AddWait(CLI::App& command, std::optional<double>& minutes) {
  AddOptionalNumber(command, "--wait", minutes, 1440, 0.01, 100'000, "MINUTES",
                    "Queue for idle GPUs, for up to MINUTES; without a number: one day");
}

CLI::Option* ConfigOptions::AddConfig(CLI::App& command) {
  CLI::Option* const option = command.add_option("CONFIG", config, "Config file (configs/*.txtpb)");
  option->required()->type_name("FILE");
  AddSet(command, "Change any setting, such as run.seed=2; may be repeated");
  return option;
}

// A longer type name would leave no room for the text beside it.
CLI::Option* ConfigOptions::AddSet(CLI::App& command, const char* text) {
  return command.add_option("--set", set_, text)->type_name("KEY=VALUE")->allow_extra_args(false);
}

CLI::Option* ConfigOptions::AddShorthand(CLI::App& command, const char* name, const char* path,
                                         const char* type, const char* text) {
  shorthands_.push_back(std::make_unique<Shorthand>(Shorthand{name, path, ""}));
  return AddOption(command, name, shorthands_.back()->value, type, text);
}

void ConfigOptions::AddTraceSteps(CLI::App& command) {
  AddOption(command, "--trace-steps", trace_steps_, "A-B",
            "Steps to record, counted from 0 (run.trace_first_step, run.trace_steps); default: "
            "20-29");
}

void ConfigOptions::AddInitialWeights(CLI::App& command) {
  CLI::Option* const weights =
      AddShorthand(command, "--initial-weights", "run.initial_weights", "FILE",
                   "Start from the weights in this safetensors file of a run or of PyTorch "
                   "(run.initial_weights)");
  CLI::Option* const skip = AddSkipMismatched(command, skip_mismatched_)->needs(weights);
  command
      .add_flag("--from-scratch", from_scratch_,
                "Start from random weights, whatever run.initial_weights the config has")
      ->excludes(weights)
      ->excludes(skip);
}

std::string ConfigOptions::path() const {
  std::string path = FindConfig(config, ProgramFolder());
  std::error_code ignored;
  const bool missing = fs::symlink_status(path, ignored).type() == fs::file_type::not_found;
  const std::string similar = path.empty() || !missing ? "" : SimilarConfig(path);
  if (similar.empty()) return path;
  throw Error(ExitCode::kUsage, "{}: there is no such file; did you mean {}?", path, similar);
}

std::vector<Setting> ConfigOptions::settings() const {
  std::vector<Setting> settings;
  for (const std::string& text : set_) settings.push_back(ParseSetting(text));
  const auto add = [&](const char* path, const std::string& value, const std::string& origin) {
    for (const Setting& other : settings) {
      if (other.path != path) continue;
      throw Error(ExitCode::kUsage, "{} and {} change the same setting: give one of them", origin,
                  other.origin);
    }
    settings.push_back({path, value, origin});
  };
  for (const auto& one : shorthands_) {
    if (!one->value.empty())
      add(one->path, one->value, Shown(fmt::format("{} {}", one->name, one->value)));
  }
  if (skip_mismatched_) add("run.skip_mismatched", "true", "--skip-mismatched");
  if (from_scratch_) {
    add("run.initial_weights", "", "--from-scratch");
    add("run.skip_mismatched", "false", "--from-scratch");
  }
  if (!trace_steps_.empty()) {
    const auto [first, count] = TraceSteps(trace_steps_);
    add("run.trace_first_step", first, "--trace-steps " + trace_steps_);
    add("run.trace_steps", count, "--trace-steps " + trace_steps_);
  }
  return settings;
}

void AddChoice(CLI::App& command, ModelChoice& choice) {
  CLI::Option* const best = command.add_flag(
      "--best", choice.best,
      "Use a run's weights of the best evaluation; the default if a validation set "
      "chose them");
  CLI::Option* const last =
      command.add_flag("--last", choice.last, "Use a run's last weights")->excludes(best);
  CLI::Option* const average =
      command.add_flag("--ema", choice.average, "Use the moving average of the weights")
          ->excludes(best)
          ->excludes(last);
  command
      .add_flag("--raw", choice.raw,
                "Use the weights themselves, even if evaluations use their average")
      ->excludes(best)
      ->excludes(last)
      ->excludes(average);
}

void AddFrom(CLI::App& command, std::string& from) {
  command
      .add_option("FROM", from,
                  "A run directory (latest: the newest one), a checkpoint (a folder in "
                  "RUN_DIR/checkpoints), or a safetensors file")
      ->required()
      ->type_name("PATH")
      ->check(SomeText());
}

void AddOut(CLI::App& command, std::string& out, bool& force, const char* text) {
  command.add_option("OUT", out, text)->required()->type_name("PATH")->check(SomeText());
  command.add_flag("--force", force,
                   "Replace OUT if it exists; replaces a symbolic link itself, not its target");
}

CLI::Option* AddSkipMismatched(CLI::App& command, bool& skip) {
  return command.add_flag(
      "--skip-mismatched", skip,
      "Skip variables that do not fit, such as a new last layer's, and name them; they keep their "
      "initial values");
}

}  // namespace muster
