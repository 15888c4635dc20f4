// Options that several commands share, what their values may be, and the programs and configs of
// this build or installation.
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

inline constexpr uint32_t kMostWorkers = 1024;  // as cluster.workers
inline constexpr const char* kResumeAuto = "auto";

// "muster data get": what a person types.
std::string FullName(const CLI::App& command);
// Throws Error(kUsage) if there are any: this command takes none.
void RefuseBehind(const CLI::App& command, const std::vector<std::string>& behind);

// The folder of this program, and another program in it.
std::filesystem::path ProgramFolder();
std::string Sibling(const std::string& name);

// The file that is meant by `name`: `name` itself, unless no such file is here and one of that name
// came with the program, so that the README's commands work in any folder. Beside `program_folder`
// (PREFIX/bin), a package has configs at PREFIX/name, `cmake --install` at
// PREFIX/share/muster/name. Never fails: a missing file is its reader's error.
std::string FindConfig(const std::string& name, const std::filesystem::path& program_folder);

// Adds a command. `describe(command, options)` adds its options; `run(options)` is its action.
template <typename Options, typename Describe, typename Run>
CLI::App* AddCommand(CLI::App& app, Action& action, const char* name, const char* text,
                     const Describe& describe, Run run) {
  CLI::App* const command = app.add_subcommand(name, text);
  const auto options = std::make_shared<Options>();
  describe(*command, *options);
  command->callback([command, &action, options, run] {
    if (!command->get_subcommands().empty()) return;  // a command below this one has the action
    action = [command, options, run](const std::vector<std::string>& behind) {
      RefuseBehind(*command, behind);
      return run(*options);
    };
  });
  return command;
}

// Checks, with messages in plain words.
CLI::Validator WholeNumber(uint64_t least, uint64_t most);
CLI::Validator OneOf(const std::vector<std::string>& names);
CLI::Validator SomeText();

// An option with a text that is not empty.
CLI::Option* AddOption(CLI::App& command, const char* name, std::string& value, const char* type,
                       const char* text);
// An option with a number, or alone for the usual one.
void AddOptionalNumber(CLI::App& command, const char* name, std::optional<double>& value,
                       double usual, double least, double most, const char* type, const char* text);
// --wait, for GPUs.
void AddWait(CLI::App& command, std::optional<double>& minutes);

// CONFIG, --set, and options that stand for one setting each.
class ConfigOptions {
 public:
  // CONFIG, which is required, and --set.
  CLI::Option* AddConfig(CLI::App& command);
  CLI::Option* AddSet(CLI::App& command, const char* text);
  // `--name VALUE` for `--set path=VALUE`.
  CLI::Option* AddShorthand(CLI::App& command, const char* name, const char* path, const char* type,
                            const char* text);
  // --trace-steps, which stands for two settings.
  void AddTraceSteps(CLI::App& command);
  // --skip-mismatched, which is a setting where --initial-weights is given.
  void AddInitialWeights(CLI::App& command);

  std::string config;  // as typed
  // The file that `config` names: see FindConfig. "" if none was given.
  std::string path() const;
  // All settings, in the order given. Throws Error(kUsage) for two words for one setting.
  std::vector<Setting> settings() const;

 private:
  struct Shorthand {
    const char* name;
    const char* path;
    std::string value;
  };
  std::vector<std::string> set_;
  std::vector<std::unique_ptr<Shorthand>> shorthands_;  // CLI11 keeps addresses of their values
  std::string trace_steps_;
  bool skip_mismatched_ = false;
};

// --best, --ema and --raw: which of the weights that a run or a checkpoint holds.
void AddChoice(CLI::App& command, ModelChoice& choice);
// FROM: a run directory, a checkpoint or a file.
void AddFrom(CLI::App& command, std::string& from);
// OUT and --force.
void AddOut(CLI::App& command, std::string& out, bool& force, const char* text);
CLI::Option* AddSkipMismatched(CLI::App& command, bool& skip);

}  // namespace muster
