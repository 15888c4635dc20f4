#include "cli/commands/command_line.h"

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <sstream>
#include <string>
#include <vector>

#include "cli/commands/options.h"
#include "cli/text/console.h"
#include "cli/text/wrapped.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "common/base/version.h"
#include "common/config/nearest_name.h"

namespace muster {
namespace {

constexpr int kHelpWidth = 80;

constexpr const char* kOverview =
    "Muster trains a neural network with synchronous data parallelism through a parameter "
    "server. One server process owns the weights. Worker processes, by default one per core, "
    "each compute gradients on a part of every batch.";

constexpr const char* kExamples =
    "Examples:\n"
    "  muster data get cifar10 data                  download CIFAR-10\n"
    "  muster launch configs/cifar10.txtpb --workers 2 --data data\n"
    "  muster launch runs/NAME/config.txtpb          repeat a run\n"
    "  muster launch --resume runs/NAME              resume a stopped run\n"
    "  muster verify runs/NAME                       check that its bits repeat\n"
    "  muster inspect configs/cifar10.txtpb          layers, variables, chunks\n"
    "  muster inspect runs/NAME                      its state and weights\n"
    "  muster export runs/NAME model.onnx\n"
    "  muster import pt.safetensors --config configs/cifar10.txtpb ours.safetensors\n"
    "  muster eval runs/NAME                         accuracy, class by class\n"
    "  muster predict runs/NAME photo.jpg folder     classify photos\n"
    "  muster predict runs/NAME --samples 0-9\n"
    "  muster launch configs/cifar10.txtpb --data data --trace t.json --steps 40\n"
    "  muster trace t.json                           where a step's time goes\n"
    "  muster bench --model configs/cifar10.txtpb    what a round costs here\n"
    "  muster gpus                                   who uses which GPU\n"
    "  muster doctor configs/cifar10.txtpb           check that it can run here\n"
    "  muster runs                                   list runs\n"
    "  muster top runs/NAME                          watch a run\n"
    "  muster plot runs/NAME                         draw its curves as SVG, PNG or PDF\n"
    "  muster eval latest                            of the newest run in ./runs\n"
    "  muster server configs/cifar10.txtpb --data data   a job on several machines\n"
    "`muster COMMAND --help` describes a command. `muster launch --help` explains the exit codes.";

// The command that a word of other programs means, or "".
std::string Means(const std::string& word) {
  constexpr std::pair<const char*, const char*> kWords[] = {
      {"train", "launch"},  {"fit", "launch"},        {"run", "launch"},      {"start", "launch"},
      {"resume", "launch"}, {"evaluate", "eval"},     {"validate", "eval"},   {"test", "eval"},
      {"help", "--help"},   {"version", "--version"}, {"summary", "inspect"}, {"show", "inspect"},
      {"list", "runs"},     {"status", "top"},        {"convert", "import"}};
  for (const auto& [other, ours] : kWords) {
    if (word == other) return ours;
  }
  return "";
}

// Returns the command that the words select. Throws for an unknown name.
const CLI::App* FindCommand(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  for (const std::string& word : words) {
    std::vector<const CLI::App*> choices =
        command->get_subcommands([](const CLI::App*) { return true; });
    if (choices.empty() || word.empty() || word[0] == '-') break;
    std::vector<std::string> names;
    const CLI::App* next = nullptr;
    for (const CLI::App* choice : choices) {
      if (!choice->get_group().empty()) names.push_back(choice->get_name());
      if (choice->get_name() == word) next = choice;
    }
    if (next == nullptr) {
      std::string meant = command == &app ? Means(word) : "";
      if (meant.empty()) meant = NearestName(word, names);
      throw Error(ExitCode::kUsage, "unknown command '{}'; {}", word,
                  meant.empty() ? fmt::format("known: {}", Join(names, ", "))
                                : fmt::format("did you mean '{}'?", meant));
    }
    command = next;
  }
  return command;
}

// Names the subcommand or required argument that is missing.
std::string MissingText(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* choice : command.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(choice->get_name());
  }
  if (!names.empty()) return "a command is missing: expected one of " + Join(names, ", ");
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_required() || option->count() > 0) continue;
    return fmt::format("{} is missing: {}", option->get_name(), option->get_description());
  }
  return "";
}

// Rewords CLI11's messages, except those of our own validators.
std::string InOurWords(const CLI::ParseError& error, const CLI::App& command) {
  std::string text = error.what();
  const std::string subject = text.substr(0, text.find_first_of(": "));  // begins most messages
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    std::string missing = MissingText(command);
    if (!missing.empty()) return missing;
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    return fmt::format("expected no more arguments, got {}", text.substr(text.find(": ") + 2));
  }
  if (dynamic_cast<const CLI::ExcludesError*>(&error) != nullptr) {
    return fmt::format("expected one of {}, {}, got both", subject,
                       text.substr(text.rfind(' ') + 1));
  }
  if (dynamic_cast<const CLI::RequiresError*>(&error) != nullptr) {
    return fmt::format("{} requires {}", subject, text.substr(text.rfind(' ') + 1));
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    return fmt::format("{}: expected {}", subject,
                       text.find("received") == std::string::npos
                           ? "a value, got none"
                           : "it once, got it twice or more");
  }
  return text;
}

// The replacement for an option that other programs have, or null.
const char* InsteadOf(std::string option) {
  constexpr const char* kGpus =
      "use --devices to choose GPUs (auto:2, 0,1, cpu), or --workers for one GPU per worker";
  constexpr const char* kRate = "use --set learning_rate.base=0.1";
  constexpr std::pair<const char*, const char*> kWords[] = {
      {"--gpu", kGpus},           {"--gpus", kGpus},
      {"--num-gpus", kGpus},      {"--lr", kRate},
      {"--learning-rate", kRate}, {"--batch-size", "use --set run.global_batch=256"}};
  std::ranges::replace(option, '_', '-');
  for (const auto& [word, instead] : kWords) {
    if (option == word) return instead;
  }
  return nullptr;
}

// Explains the error, and suggests the option that was probably meant.
std::string Explain(const CLI::ParseError& error, const CLI::App& command,
                    const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (i > 0 && words[i - 1] == "--slurm") continue;  // its value has options of sbatch
    std::string option = word.substr(0, word.find('='));
    // A negative number is the value of the option before it.
    if (i > 0 && word.size() > 1 && word[0] == '-' &&
        std::isdigit(static_cast<unsigned char>(word[1])) &&
        std::find(names.begin(), names.end(), words[i - 1]) != names.end()) {
      return fmt::format("{} {}: expected a number that is not negative", words[i - 1], word);
    }
    if (option.size() < 2 || option[0] != '-' ||
        std::find(names.begin(), names.end(), option) != names.end()) {
      continue;
    }
    if (const char* const instead = InsteadOf(option)) {
      return fmt::format("unknown option '{}'; {}", option, instead);
    }
    std::string nearest = NearestName(option, names);
    return fmt::format("unknown option '{}'{}", option,
                       nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest));
  }
  return InOurWords(error, command);
}

int Run(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  // The words after "--" are another program's command line.
  const auto dashes = std::find(words.begin(), words.end(), "--");
  const std::vector<std::string> behind(dashes == words.end() ? dashes : dashes + 1, words.end());
  words.erase(dashes, words.end());
  Action action;
  CLI::App app(kOverview, "muster");
  AddCommands(app, action);
  if (words.empty()) {
    Console(STDERR_FILENO).PrintAsIs(WrappedRows(app.help(), kHelpWidth));
    return static_cast<int>(ExitCode::kUsage);
  }
  const CLI::App* command = FindCommand(app, words);
  try {
    app.parse(static_cast<int>(words.size()) + 1, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help and --version
      std::ostringstream text;
      (void)app.exit(error, text, text);
      PrintResultAsIs(WrappedRows(text.str(), kHelpWidth));
      return 0;
    }
    throw Error(ExitCode::kUsage, "{} (see {} --help)", Shown(Explain(error, *command, words)),
                FullName(*command));
  }
  return action(behind);
}

}  // namespace

void AddCommands(CLI::App& app, Action& action) {
  app.set_version_flag("--version", std::string("muster ") + kVersion);
  app.require_subcommand(1);
  for (const auto& add :
       {AddLaunch, AddInspect, AddImport, AddExport,  AddEval,   AddPredict, AddTrace,
        AddBench,  AddGpus,    AddData,   AddServer,  AddWorker, AddRuns,    AddDoctor,
        AddTop,    AddPlot,    AddVerify, AddWeights, AddToken,  AddHost}) {
    add(app, action);
  }
  app.footer(kExamples);  // last, because commands added later would inherit it
}

int RunCommandLine(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const Error& error) {
    PrintError(fmt::format("muster: error: {}\n", error.what()));
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    PrintError(fmt::format("muster: error: {}\n", error.what()));
    return static_cast<int>(ExitCode::kFailure);
  }
}

}  // namespace muster
