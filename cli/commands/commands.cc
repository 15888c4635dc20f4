#include "cli/commands/commands.h"

#include <fmt/core.h>
#include <strings.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "cli/bench/bench_command.h"
#include "cli/commands/find_config.h"
#include "cli/commands/model_commands.h"
#include "cli/commands/programs.h"
#include "cli/data/count_samples.h"
#include "cli/data/download.h"
#include "cli/data/synthesize.h"
#include "cli/doctor/doctor_command.h"
#include "cli/gpu/gpus_command.h"
#include "cli/job/job_token.h"
#include "cli/job/launch_command.h"
#include "cli/text/console.h"
#include "cli/view/plot_command.h"
#include "cli/view/runs_command.h"
#include "cli/view/top_command.h"
#include "cli/view/trace_merge.h"
#include "cli/view/trace_summary.h"
#include "common/base/error.h"
#include "common/base/join.h"
#include "common/config/config.h"
#include "common/config/job_size.h"
#include "common/link/protocol.h"
#include "common/link/tcp_address.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

constexpr int64_t kTrainFiles = 5;  // of CIFAR-10's layout

// This process becomes the sibling program.
[[noreturn]] void Become(const std::string& name, const std::vector<std::string>& arguments) {
  std::string program = Sibling(name);
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(program.c_str(), pointers.data());
  throw Error(ExitCode::kFailure, "cannot execute {}: {}", program, std::strerror(errno));
}

std::string RunToGoOnWith(const Arguments& arguments) {
  return arguments.resume == kResumeAuto ? "" : arguments.resume;
}

int Launch(const Arguments& arguments) {
  const LaunchArguments launch{.config_path = arguments.config,
                               .settings = SettingsOf(arguments),
                               .server_program = Sibling("muster-server"),
                               .worker_program = Sibling("muster-worker"),
                               .resume = RunToGoOnWith(arguments),
                               .resume_or_begin = arguments.resume == kResumeAuto,
                               .repeat = arguments.repeat,
                               .log_placement = arguments.log_placement,
                               .wait_s = 60 * arguments.wait_minutes.value_or(0),
                               .count_data = CountSamples};
  return arguments.dry_run ? DryRun(launch) : RunLaunch(launch);
}

int Server(const Arguments& arguments) {
  return RunLaunch({.config_path = arguments.config,
                    .settings = SettingsOf(arguments),
                    .server_program = Sibling("muster-server"),
                    .worker_program = Sibling("muster-worker"),
                    .resume = RunToGoOnWith(arguments),
                    .resume_or_begin = arguments.resume == kResumeAuto,
                    .by_hand = WorkersByHand{.endpoint = arguments.endpoint,
                                             .bind = arguments.bind,
                                             .token_file = arguments.token_file}});
}

// Everything that can be wrong with the command line is said here; the worker itself speaks in log
// lines.
int Worker(const Arguments& arguments) {
  if (!arguments.rank && !arguments.join) {
    throw Error(ExitCode::kUsage,
                "--rank is missing: This worker's number, or --join (see muster worker --help)");
  }
  const std::vector<Setting> settings = SettingsOf(arguments);
  config::Config config = LoadConfig(arguments.config, settings);
  // Of a config that leaves it to the server's cores, the server alone knows the number.
  const bool known = config.cluster().has_workers();
  ResolveConfig(config, AvailableCores());
  const uint32_t most = MostWorkers(config);
  if (known && arguments.rank && *arguments.rank >= most) {
    throw Error(
        ExitCode::kUsage, "--rank {}: expected 0 to {}, since cluster.workers is {}{}",
        *arguments.rank, most - 1, config.cluster().workers(),
        most > config.cluster().workers() ? fmt::format(" and {} fit in the job", most) : "");
  }
  CheckConnectable(arguments.endpoint);
  std::vector<std::string> words{"--config", arguments.config, "--endpoint", arguments.endpoint};
  if (arguments.join) {
    words.emplace_back("--join");
  } else {
    words.insert(words.end(), {"--rank", std::to_string(*arguments.rank)});
  }
  for (const Setting& setting : settings) {
    words.insert(words.end(), {"--set", setting.path + "=" + setting.value});
  }
  if (!arguments.token_file.empty()) {
    (void)ReadToken(arguments.token_file);
    words.insert(words.end(), {"--token-file", arguments.token_file});
  } else if (std::getenv(kTokenVariable) == nullptr) {
    (void)RequireToken("", arguments.join ? std::string("a worker that joins")
                                          : fmt::format("worker {}", *arguments.rank));
  }
  Become("muster-worker", words);
}

// `muster token`: to a file, or to standard output.
int MakeToken(const Arguments& arguments) {
  const std::string token = NewToken();
  if (arguments.token_file.empty()) {
    PrintResult(token);
    return 0;
  }
  WriteTokenFile(arguments.token_file, token);
  PrintResult("a new job token, for --token-file: " + arguments.token_file);
  return 0;
}

int Bench(const Arguments& arguments) {
  return RunBench({.update_program = Sibling("update_bench"),
                   .sync_program = Sibling("sync_bench"),
                   .size = arguments.size,
                   .config_path = arguments.config,
                   .settings = SettingsOf(arguments),
                   .workers = arguments.bench_workers,
                   .json = arguments.json});
}

int Gpus(const Arguments& arguments) {
  return RunGpus({.json = arguments.json, .watch_s = arguments.watch_seconds.value_or(0)});
}

int SumUpTrace(const Arguments& arguments) {
  if (!arguments.merge.empty()) {
    (void)MergeTrace(arguments.merge, arguments.trace, MergeMode::kRefuseOthers);
  }
  PrintResult(Join(TraceSummary(ReadTrace(arguments.trace)), "\n"));
  return 0;
}

int Doctor(const Arguments& arguments) {
  return RunDoctor(
      {.config_path = arguments.config,
       .settings = SettingsOf(arguments),
       .programs = {Sibling("muster"), Sibling("muster-server"), Sibling("muster-worker")},
       .count_data = CountSamples});
}

int Plot(const Arguments& arguments) {
  return PlotRuns({.run_dirs = arguments.run_dirs,
                   .output = arguments.output,
                   .axis = arguments.axis == "epoch"  ? PlotAxis::kEpoch
                           : arguments.axis == "time" ? PlotAxis::kTime
                                                      : PlotAxis::kStep});
}

int GetData(const Arguments& arguments) {
  if (::strcasecmp(arguments.dataset.c_str(), "cifar10") == 0) {
    DownloadCifar10(arguments.dir);
  } else if (::strcasecmp(arguments.dataset.c_str(), "mnist") == 0) {
    DownloadMnist(arguments.dir);
  } else {
    throw Error(ExitCode::kUsage, "unknown data set '{}'; known: cifar10, mnist",
                arguments.dataset);
  }
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

}  // namespace

int RunCommand(const std::string& command, const Arguments& as_typed) {
  Arguments arguments = as_typed;
  arguments.config = FindConfig(as_typed.config, ProgramFolder());
  if (command == "launch") return Launch(arguments);
  if (command == "server") return Server(arguments);
  if (command == "worker") return Worker(arguments);
  if (command == "token") return MakeToken(arguments);
  if (command == "inspect") return Inspect(arguments);
  if (command == "import") return Import(arguments);
  if (command == "export") return Export(arguments);
  if (command == "eval") return Eval(arguments);
  if (command == "predict") return Predict(arguments);
  if (command == "bench") return Bench(arguments);
  if (command == "trace") return SumUpTrace(arguments);
  if (command == "gpus") return Gpus(arguments);
  if (command == "gpus run") {
    if (arguments.command.empty()) {
      throw Error(ExitCode::kUsage,
                  "the command is missing: muster gpus run [OPTIONS] -- COMMAND …");
    }
    RunWithGpus({.count = arguments.cards,
                 .wait_s = 60 * arguments.wait_minutes.value_or(0),
                 .command = arguments.command});
  }
  if (command == "runs") return ListRuns(arguments.runs_dir, arguments.json);
  if (command == "doctor") return Doctor(arguments);
  if (command == "top") return WatchRun(arguments.dir, arguments.once);
  if (command == "plot") return Plot(arguments);
  if (command == "data get") return GetData(arguments);
  MUSTER_CHECK(command == "data synth");
  return SynthesizeData(arguments);
}

}  // namespace muster
