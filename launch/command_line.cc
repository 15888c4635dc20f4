#include "launch/command_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "common/config.h"
#include "common/error.h"
#include "common/protocol.h"
#include "common/text_format.h"
#include "launch/bench/bench_command.h"
#include "launch/console.h"
#include "launch/data/count_samples.h"
#include "launch/data/download.h"
#include "launch/data/synthesize.h"
#include "launch/help_text.h"
#include "launch/inspect_command.h"
#include "launch/job_token.h"
#include "launch/launch_command.h"
#include "launch/trace/merge.h"
#include "launch/trace/summary.h"

namespace muster {
namespace {

constexpr int64_t kTrainFiles = 5;  // of CIFAR-10's layout

// The programs of one build or installation lie in one directory.
std::string Sibling(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

// This process becomes the sibling program.
[[noreturn]] void Become(const std::string& name, const std::vector<std::string>& arguments) {
  std::string program = Sibling(name);
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(program.c_str(), pointers.data());
  throw Error(ExitCode::kFailure, "cannot execute {}: {}", program, std::strerror(errno));
}

struct Arguments {
  std::string config;
  std::vector<std::string> set;
  std::string workers, data, run_dir, epochs, steps, seed;  // checked where the config is
  std::string trace, trace_steps;
  std::vector<std::string> merge;          // parts of a trace
  std::string endpoint, bind, token_file;  // of processes started by hand
  uint32_t rank = 0;
  std::string dataset, dir;
  int repeat = 0;
  bool dry_run = false, log_placement = false, json = false;
  double size = 0;  // bytes of a model
  int bench_workers = 0;
  uint64_t synth_seed = 1;
  int64_t synth_train = 50000, synth_test = 10000;
};

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

std::vector<Setting> Settings(const Arguments& arguments) {
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
  shorthand("--trace", "run.trace_file", arguments.trace);
  if (!arguments.trace_steps.empty()) {
    const auto [first, count] = TraceSteps(arguments.trace_steps);
    shorthand("--trace-steps", "run.trace_first_step", first, arguments.trace_steps);
    shorthand("--trace-steps", "run.trace_steps", count, arguments.trace_steps);
  }
  return settings;
}

int Launch(const Arguments& arguments) {
  const LaunchArguments launch{.config_path = arguments.config,
                               .settings = Settings(arguments),
                               .server_program = Sibling("muster-server"),
                               .worker_program = Sibling("muster-worker"),
                               .repeat = arguments.repeat,
                               .log_placement = arguments.log_placement};
  return arguments.dry_run ? DryRun(launch, CountSamples) : RunLaunch(launch);
}

int Server(const Arguments& arguments) {
  return RunLaunch({.config_path = arguments.config,
                    .settings = Settings(arguments),
                    .server_program = Sibling("muster-server"),
                    .worker_program = Sibling("muster-worker"),
                    .by_hand = WorkersByHand{.endpoint = arguments.endpoint,
                                             .bind = arguments.bind,
                                             .token_file = arguments.token_file}});
}

// Everything that can be wrong with the command line is said here; the worker itself speaks in log
// lines.
int Worker(const Arguments& arguments) {
  const std::vector<Setting> settings = Settings(arguments);
  config::Config config = LoadConfig(arguments.config, settings);
  ResolveConfig(config, AvailableCores());
  if (arguments.rank >= config.cluster().workers()) {
    throw Error(ExitCode::kUsage, "--rank {}: expected 0 to {}, since cluster.workers is {}",
                arguments.rank, config.cluster().workers() - 1, config.cluster().workers());
  }
  std::vector<std::string> words{"--config",   arguments.config,
                                 "--rank",     std::to_string(arguments.rank),
                                 "--endpoint", arguments.endpoint};
  for (const Setting& setting : settings) {
    words.insert(words.end(), {"--set", setting.path + "=" + setting.value});
  }
  if (!arguments.token_file.empty()) {
    (void)ReadToken(arguments.token_file);
    words.insert(words.end(), {"--token-file", arguments.token_file});
  } else if (std::getenv(kTokenVariable) == nullptr) {
    (void)RequireToken("", fmt::format("worker {}", arguments.rank));
  }
  Become("muster-worker", words);
}

// `muster token`: to a file, or to standard output.
int MakeToken(const Arguments& arguments) {
  const std::string token = NewToken();
  if (arguments.token_file.empty()) {
    std::cout << token << "\n" << std::flush;
    return std::cout.good() ? 0 : static_cast<int>(ExitCode::kFailure);
  }
  WriteTokenFile(arguments.token_file, token);
  std::cout << "a new job token, for --token-file: " << arguments.token_file << "\n";
  return 0;
}

int Inspect(const Arguments& arguments) {
  Console console(STDOUT_FILENO);
  for (const std::string& line : InspectLines(LoadConfig(arguments.config, Settings(arguments)))) {
    console.Print(line);
  }
  console.Finish(60);
  return 0;
}

int Bench(const Arguments& arguments) {
  return RunBench({.update_program = Sibling("update_bench"),
                   .sync_program = Sibling("sync_bench"),
                   .size = arguments.size,
                   .config_path = arguments.config,
                   .settings = Settings(arguments),
                   .workers = arguments.bench_workers,
                   .json = arguments.json});
}

int SumUpTrace(const Arguments& arguments) {
  Console console(STDOUT_FILENO);
  if (!arguments.merge.empty()) {
    const MergedTrace merged = MergeTrace(arguments.merge, arguments.trace);
    if (!merged.missing.empty()) {
      throw Error(ExitCode::kData, "{}: cannot be read", merged.missing.front());
    }
  }
  for (const std::string& line : TraceSummary(ReadTrace(arguments.trace))) console.Print(line);
  console.Finish(60);
  return 0;
}

int GetData(const Arguments& arguments) {
  if (arguments.dataset != "cifar10") {
    throw Error(ExitCode::kUsage, "unknown data set '{}'; known: cifar10", arguments.dataset);
  }
  DownloadCifar10(arguments.dir);
  return 0;
}

int SynthesizeData(const Arguments& arguments) {
  if (arguments.synth_train % kTrainFiles != 0) {
    throw Error(ExitCode::kUsage, "--train {}: expected a multiple of {}, one part for each file",
                arguments.synth_train, kTrainFiles);
  }
  SynthesizeCifar10(arguments.dir, arguments.synth_seed, arguments.synth_train / kTrainFiles,
                    arguments.synth_test);
  return 0;
}

void AddConfigArguments(CLI::App& command, Arguments& arguments) {
  command.add_option("CONFIG", arguments.config, "Config file (configs/*.txtpb)")
      ->required()
      ->type_name("FILE");
  command.add_option("--set", arguments.set, "Any setting of the config; may be repeated")
      ->type_name("PATH.TO.KEY=VALUE")
      ->allow_extra_args(false);
}

void AddOption(CLI::App& command, const char* name, std::string& value, const char* type,
               const char* text) {
  command.add_option(name, value, text)->type_name(type);
}

// What a whole job has, whoever starts its workers.
void AddJobArguments(CLI::App& command, Arguments& arguments) {
  AddConfigArguments(command, arguments);
  AddOption(command, "--workers", arguments.workers, "N", "Worker processes (cluster.workers)");
  AddOption(command, "--data", arguments.data, "DIR", "Directory of the data (data.dir)");
  AddOption(command, "--run-dir", arguments.run_dir, "DIR",
            "Where the run's files go (run.dir); default: runs/<config>-<date>-<time>");
  AddOption(command, "--epochs", arguments.epochs, "N", "Train so long (run.epochs)");
  AddOption(command, "--steps", arguments.steps, "N", "... or so long (run.steps)");
  command.get_option("--steps")->excludes(command.get_option("--epochs"));
  AddOption(command, "--seed", arguments.seed, "S",
            "All randomness is a function of it (run.seed)");
}

void AddTokenFile(CLI::App& command, Arguments& arguments, const char* text) {
  AddOption(command, "--token-file", arguments.token_file, "FILE", text);
}

void DescribeLaunch(CLI::App& launch, Arguments& arguments) {
  AddJobArguments(launch, arguments);
  launch
      .add_option("--repeat", arguments.repeat,
                  "Run N times, with seeds S ... S+N-1, and show mean and deviation")
      ->type_name("N")
      ->check(CLI::Range(1, 1000));
  launch.add_flag("--dry-run", arguments.dry_run,
                  "Print what would run (config, ranks, steps, memory); start and write nothing");
  launch.add_flag("--log-placement", arguments.log_placement,
                  "Print where each rank runs: host, pid, device, threads, cores");
  AddOption(launch, "--trace", arguments.trace, "FILE",
            "Write what every thread does in some steps to FILE (run.trace_file), for\n"
            "https://ui.perfetto.dev, chrome://tracing and `muster trace`");
  AddOption(launch, "--trace-steps", arguments.trace_steps, "A-B",
            "Which steps, counted from 0 (run.trace_first_step, run.trace_steps); default: 20-29");
  launch.footer(kLaunchFooter);
}

void DescribeServer(CLI::App& server, Arguments& arguments) {
  AddJobArguments(server, arguments);
  AddOption(server, "--endpoint", arguments.endpoint, "tcp://HOST:PORT",
            "What workers connect to, and, without --bind, where the server listens; * as PORT: "
            "any free one. Default: tcp://127.0.0.1:*");
  AddOption(server, "--bind", arguments.bind, "tcp://HOST:PORT",
            "Where to listen, if elsewhere; tcp://*:PORT: on every interface");
  AddTokenFile(server, arguments,
               "The job's token; default: $MUSTER_TOKEN, or else a new one in the run directory");
  server.footer(kServerFooter);
}

void DescribeWorker(CLI::App& worker, Arguments& arguments) {
  AddConfigArguments(worker, arguments);
  worker.add_option("--rank", arguments.rank, "This worker's number, from 0")
      ->required()
      ->type_name("R");
  worker.add_option("--endpoint", arguments.endpoint, "As the server says it")
      ->required()
      ->type_name("tcp://HOST:PORT");
  AddTokenFile(worker, arguments, "The job's token; default: $MUSTER_TOKEN");
  AddOption(worker, "--workers", arguments.workers, "N", "As at the server (cluster.workers)");
  AddOption(worker, "--data", arguments.data, "DIR", "Directory of the data here (data.dir)");
  AddOption(worker, "--seed", arguments.seed, "S", "As at the server (run.seed)");
  worker.footer(kWorkerFooter);
}

void DescribeTrace(CLI::App& trace, Arguments& arguments) {
  trace.add_option("FILE", arguments.trace, "What `muster launch --trace FILE` wrote")
      ->required()
      ->type_name("PATH");
  trace
      .add_option("--merge", arguments.merge,
                  "First make FILE of these parts: of a job whose launcher could not, or of "
                  "processes that were started by hand")
      ->type_name("PART");
}

void DescribeBench(CLI::App& bench, Arguments& arguments) {
  CLI::Option* const size =
      bench
          .add_option("--size", arguments.size,
                      "Bytes of the model's weights: 400MB (10^6), 64MiB (2^20); default: 32MiB")
          ->type_name("BYTES")
          ->transform(CLI::AsSizeValue(true))
          ->check(CLI::Range(1024.0, 4e9));
  CLI::Option* const model =
      bench
          .add_option("--model", arguments.config,
                      "The config of a run: its network, optimizer, workers and server threads")
          ->type_name("CONFIG")
          ->excludes(size);
  bench.add_option("--set", arguments.set, "Any setting of that config; may be repeated")
      ->type_name("PATH.TO.KEY=VALUE")
      ->allow_extra_args(false)
      ->needs(model);
  bench.add_option("--workers", arguments.bench_workers, "Worker processes; default: 2")
      ->type_name("N")
      ->check(CLI::Range(1, 64));
  bench.add_flag("--json", arguments.json, "Print one JSON object instead");
  bench.footer(kBenchFooter);
}

void DescribeData(CLI::App& data, Arguments& arguments) {
  data.require_subcommand(1);
  CLI::App* get = data.add_subcommand("get", "Download a published data set");
  get->add_option("DATASET", arguments.dataset, "cifar10")->required()->type_name("NAME");
  get->add_option("DIR", arguments.dir, "Where to put it")->required()->type_name("PATH");
  CLI::App* synth = data.add_subcommand(
      "synth", "Make a procedural set of images in CIFAR-10's layout, for work without a network");
  synth->add_option("DIR", arguments.dir, "Where to put it")->required()->type_name("PATH");
  synth->add_option("--seed", arguments.synth_seed, "Another seed, other images")
      ->type_name("N")
      ->capture_default_str();
  synth->add_option("--train", arguments.synth_train, "Training images, a multiple of 5")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  synth->add_option("--test", arguments.synth_test, "Test images")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

// The command that the arguments lead to. Throws for a name that no command has.
const CLI::App* FindCommand(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  for (const std::string& word : words) {
    std::vector<const CLI::App*> choices =
        command->get_subcommands([](const CLI::App*) { return true; });
    if (choices.empty() || word.empty() || word[0] == '-') break;
    std::vector<std::string> names;
    const CLI::App* next = nullptr;
    for (const CLI::App* choice : choices) {
      names.push_back(choice->get_name());
      if (choice->get_name() == word) next = choice;
    }
    if (next == nullptr) {
      std::string nearest = NearestName(word, names);
      throw Error(ExitCode::kUsage, "unknown command '{}'; {}", word,
                  nearest.empty() ? fmt::format("known: {}", fmt::join(names, ", "))
                                  : fmt::format("did you mean '{}'?", nearest));
    }
    command = next;
  }
  return command;
}

// CLI11's message, made to name the option that was probably meant.
std::string Explain(const CLI::ParseError& error, const CLI::App& command,
                    const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (const std::string& word : words) {
    std::string option = word.substr(0, word.find('='));
    if (option.size() < 2 || option[0] != '-' ||
        std::find(names.begin(), names.end(), option) != names.end()) {
      continue;
    }
    std::string nearest = NearestName(option, names);
    return fmt::format("unknown option '{}'{}", option,
                       nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest));
  }
  return error.what();
}

int Run(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  Arguments arguments;
  CLI::App app(kOverview, "muster");
  app.set_version_flag("--version", "muster " MUSTER_VERSION);
  app.require_subcommand(1);
  CLI::App* launch = app.add_subcommand("launch", "Train: start a server and its workers");
  DescribeLaunch(*launch, arguments);
  CLI::App* inspect = app.add_subcommand("inspect", "Show a config's network without running it");
  AddConfigArguments(*inspect, arguments);
  CLI::App* trace = app.add_subcommand("trace", "Sum up a trace that launch --trace wrote");
  DescribeTrace(*trace, arguments);
  CLI::App* bench =
      app.add_subcommand("bench", "Measure how fast this machine averages and updates");
  DescribeBench(*bench, arguments);
  CLI::App* data = app.add_subcommand("data", "Get or make the data");
  DescribeData(*data, arguments);
  CLI::App* server = app.add_subcommand("server", "Start a server whose workers come by hand");
  DescribeServer(*server, arguments);
  CLI::App* worker = app.add_subcommand("worker", "Start one worker by hand, here or elsewhere");
  DescribeWorker(*worker, arguments);
  CLI::App* token = app.add_subcommand("token", "Make a job token for processes started by hand");
  token->add_option("FILE", arguments.token_file, "A new file; default: standard output")
      ->type_name("PATH");
  app.footer(kExamples);  // last: a command would inherit it

  if (words.empty()) {
    std::cerr << app.help();
    return static_cast<int>(ExitCode::kUsage);
  }
  const CLI::App* command = FindCommand(app, words);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help and --version
    std::string name = command == &app ? "muster" : "muster " + command->get_name();
    throw Error(ExitCode::kUsage, "{} (see {} --help)", Explain(error, *command, words), name);
  }
  if (launch->parsed()) return Launch(arguments);
  if (server->parsed()) return Server(arguments);
  if (worker->parsed()) return Worker(arguments);
  if (token->parsed()) return MakeToken(arguments);
  if (inspect->parsed()) return Inspect(arguments);
  if (bench->parsed()) return Bench(arguments);
  if (trace->parsed()) return SumUpTrace(arguments);
  return data->got_subcommand("get") ? GetData(arguments) : SynthesizeData(arguments);
}

}  // namespace

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
