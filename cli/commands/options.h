// Options that several commands share, checks of their values, and lookup of the programs and
// configs of this build or installation.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/model/model_source.h"
#include "common/config/config.h"

namespace muster {

inline constexpr uint32_t kMostWorkers = 1024;  // the limit of cluster.workers
inline constexpr const char* kResumeAuto = "auto";

// The words that run the command, such as "muster data get".
std::string FullName(const CLI::App& command);
// Throws Error(kUsage) if there are words after "--".
void RefuseBehind(const CLI::App& command, const std::vector<std::string>& behind);

// The folder of this program.
std::filesystem::path ProgramFolder();
// The path of another program in the same folder.
std::string Sibling(const std::string& name);

// Returns the path of the config `name`. If there is no such file here but one was installed with
// the program, returns the installed file, so that the README's commands work in any folder. With
// `program_folder` PREFIX/bin, a package has configs at PREFIX/name and `cmake --install` at
// PREFIX/share/muster/name. Never fails: the caller reports a missing file when it reads it.
std::string FindConfig(const std::string& name, const std::filesystem::path& program_folder);

// The name of the newest run below ./runs, the last that `muster runs` lists.
inline constexpr const char* kLatest = "latest";
// What a user typed where a run directory is expected. If it is kLatest, and there is no such file
// or folder, returns the newest run's directory and names it on standard error. Throws
// Error(kUsage) if there is none.
std::string RunNamed(const std::string& typed);

// Adds a command. `describe(command, options)` adds its options; `run(options)` is its action. Only
// options with a member `behind` accept words after "--", and get them.
template <typename Options, typename Describe, typename Run>
CLI::App* AddCommand(CLI::App& app, Action& action, const char* name, const char* text,
                     const Describe& describe, Run run) {
  CLI::App* const command = app.add_subcommand(name, text);
  const auto options = std::make_shared<Options>();
  describe(*command, *options);
  command->callback([command, &action, options, run] {
    if (!command->get_subcommands().empty()) return;  // a subcommand sets the action
    action = [command, options, run](const std::vector<std::string>& behind) {
      if constexpr (requires { options->behind; }) {
        options->behind = behind;
      } else {
        RefuseBehind(*command, behind);
      }
      return run(*options);
    };
  });
  return command;
}

// Validators with plain messages.
CLI::Validator WholeNumber(uint64_t least, uint64_t most);
CLI::Validator OneOf(const std::vector<std::string>& names);
CLI::Validator SomeText();

// Adds an option whose value must not be empty.
CLI::Option* AddOption(CLI::App& command, const char* name, std::string& value, const char* type,
                       const char* text);
// Adds an option with an optional number. If the number is omitted, the value is `usual`.
void AddOptionalNumber(CLI::App& command, const char* name, std::optional<double>& value,
                       double usual, double least, double most, const char* type, const char* text);
void AddWait(CLI::App& command, std::optional<double>& minutes);

// CONFIG, --set, and shorthand options for single settings.
class ConfigOptions {
 public:
  // Adds a required CONFIG, and --set.
  CLI::Option* AddConfig(CLI::App& command);
  CLI::Option* AddSet(CLI::App& command, const char* text);
  // Adds `--name VALUE`, short for `--set path=VALUE`.
  CLI::Option* AddShorthand(CLI::App& command, const char* name, const char* path, const char* type,
                            const char* text);
  // Adds --trace-steps, short for two settings.
  void AddTraceSteps(CLI::App& command);
  // Adds --initial-weights, --skip-mismatched and --from-scratch.
  void AddInitialWeights(CLI::App& command);

  std::string config;  // as typed
  // The file that `config` names (see FindConfig), or "" if none was given. Throws Error(kUsage) if
  // there is no such file, but one with a similar name.
  std::string path() const;
  // All settings, in the order given. Throws Error(kUsage) if two options set the same one.
  std::vector<Setting> settings() const;

 private:
  struct Shorthand {
    const char* name;
    const char* path;
    std::string value;
  };
  std::vector<std::string> set_;
  std::vector<std::unique_ptr<Shorthand>> shorthands_;  // CLI11 keeps pointers to their values
  std::string trace_steps_;
  bool skip_mismatched_ = false, from_scratch_ = false;
};

// Adds --best, --ema and --raw, which choose among the weights of a run or checkpoint.
void AddChoice(CLI::App& command, ModelChoice& choice);
// Adds FROM: a run directory, a checkpoint or a file.
void AddFrom(CLI::App& command, std::string& from);
// Adds OUT and --force.
void AddOut(CLI::App& command, std::string& out, bool& force, const char* text);
CLI::Option* AddSkipMismatched(CLI::App& command, bool& skip);

}  // namespace muster
