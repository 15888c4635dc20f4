#include "cli/commands/job_options.h"

#include "cli/commands/help_text.h"
#include "cli/commands/option_kinds.h"

namespace muster {
namespace {

// What a whole job has, whoever starts its workers.
void AddJobArguments(CLI::App& command, Arguments& arguments) {
  CLI::Option* const config = AddConfigArguments(command, arguments);
  AddOption(
      command, "--workers", arguments.workers, "N",
      "Worker processes (cluster.workers); default: one a core that divides the slices, at most 8");
  AddOption(command, "--data", arguments.data, "DIR", "Directory of the data (data.dir)");
  AddOption(command, "--run-dir", arguments.run_dir, "DIR",
            "Where the run's files go (run.dir); default: runs/<config>-<date>-<time>");
  // The run's own config is in its directory.
  command
      .add_option("--resume", arguments.resume,
                  "Go on with the run of this directory; auto: with that of --run-dir if it has "
                  "begun, else begin it")
      ->type_name("RUN_DIR|auto")
      ->check(SomeText())
      ->trigger_on_parse()
      ->each([config](const std::string& dir) { config->required(dir == kResumeAuto); });
  command.parse_complete_callback([&command, &arguments, config] {
    if (arguments.resume.empty() || arguments.resume == kResumeAuto) return;
    for (const CLI::Option* other : {config, command.get_option("--run-dir")}) {
      if (other->count() > 0) throw CLI::ExcludesError("--resume RUN_DIR", other->get_name());
    }
  });
  AddOption(command, "--epochs", arguments.epochs, "N",
            "How long to train, in passes over the training set (run.epochs)");
  AddOption(command, "--steps", arguments.steps, "N",
            "… or in steps, each of one global batch (run.steps)");
  command.get_option("--steps")->excludes(command.get_option("--epochs"));
  AddOption(command, "--seed", arguments.seed, "S",
            "Another seed, other random numbers: weights, order, augmentation (run.seed)");
  AddOption(command, "--initial-weights", arguments.initial_weights, "FILE",
            "Start from these weights: a safetensors file of a run or of PyTorch "
            "(run.initial_weights)");
  AddSkipMismatched(command, arguments)->needs(command.get_option("--initial-weights"));
}

void AddTokenFile(CLI::App& command, Arguments& arguments, const char* text) {
  AddOption(command, "--token-file", arguments.token_file, "FILE", text);
}

}  // namespace

void DescribeLaunch(CLI::App& launch, Arguments& arguments) {
  AddJobArguments(launch, arguments);
  launch
      .add_option("--repeat", arguments.repeat,
                  "Run N times, with seeds S ... S+N-1, and show mean and deviation")
      ->type_name("N")
      ->check(WholeNumber(1, 1000));
  launch.add_flag("--dry-run", arguments.dry_run,
                  "Print what would run (config, ranks, steps, memory); start and write nothing");
  for (const char* const option : {"--repeat", "--dry-run"}) {
    launch.get_option("--resume")->excludes(launch.get_option(option));
  }
  launch.add_flag("--log-placement", arguments.log_placement,
                  "Print where each rank runs: host, pid, card or cpu, threads, cores");
  AddOption(launch, "--devices", arguments.devices, "LIST",
            "GPUs, one a worker (worker.devices): auto, auto:N, cpu, or some of those that `muster "
            "gpus` shows: 0,2,GPU-8f3a. Default: an idle GPU for each of --workers, else one; the "
            "CPU where none is idle");
  AddWait(launch, arguments);
  AddOption(launch, "--trace", arguments.trace, "FILE",
            "Write what every thread does in some steps to FILE (run.trace_file), for "
            "https://ui.perfetto.dev and `muster trace`");
  AddOption(launch, "--trace-steps", arguments.trace_steps, "A-B",
            "Which steps, counted from 0 (run.trace_first_step, run.trace_steps); default: 20-29");
  launch.footer(kLaunchFooter);
}

void DescribeServer(CLI::App& server, Arguments& arguments) {
  AddJobArguments(server, arguments);
  AddOption(server, "--endpoint", arguments.endpoint, "tcp://HOST:PORT",
            "What workers connect to, and, without --bind, where the server listens; * as PORT: "
            "any free one. Default: tcp://127.0.0.1:*, or with cluster.transport=LOCAL a name on "
            "this host");
  AddOption(server, "--bind", arguments.bind, "tcp://HOST:PORT",
            "Where to listen, if elsewhere; tcp://*:PORT: on every interface");
  AddTokenFile(server, arguments,
               "The job's token; default: $MUSTER_TOKEN, or else a new one in the run directory");
  server.footer(kServerFooter);
}

void DescribeWorker(CLI::App& worker, Arguments& arguments) {
  AddConfigArguments(worker, arguments);
  CLI::Option& rank = *worker.add_option("--rank", arguments.rank, "This worker's number, from 0");
  rank.type_name("R")->check(WholeNumber(0, kMostWorkers - 1));
  worker
      .add_flag("--join", arguments.join,
                "Instead of a rank: take any free place, also of a job that runs already")
      ->excludes(&rank);
  worker.add_option("--endpoint", arguments.endpoint, "As the server says it")
      ->required()
      ->type_name("tcp://HOST:PORT");
  AddTokenFile(worker, arguments, "The job's token; default: $MUSTER_TOKEN");
  AddOption(worker, "--workers", arguments.workers, "N", "As at the server (cluster.workers)");
  AddOption(worker, "--data", arguments.data, "DIR", "Directory of the data here (data.dir)");
  AddOption(worker, "--seed", arguments.seed, "S", "As at the server (run.seed)");
  worker.footer(kWorkerFooter);
}

}  // namespace muster
