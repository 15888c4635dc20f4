#include "launch/command_line/options.h"

#include <fmt/core.h>

#include <cstdlib>
#include <limits>

#include "launch/command_line/help_text.h"
#include "launch/command_line/model_options.h"
#include "launch/command_line/option_kinds.h"

namespace muster {
namespace {

constexpr uint64_t kMostWorkers = 1024;          // as cluster.workers
constexpr uint64_t kMostImages = 1'000'000'000;  // 3 TB

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
  AddOption(command, "--save-to", arguments.save_to, "DIR",
            "Where the last checkpoint goes if the run directory cannot take it");
  AddOption(command, "--epochs", arguments.epochs, "N", "Train so long (run.epochs)");
  AddOption(command, "--steps", arguments.steps, "N", "... or so long (run.steps)");
  command.get_option("--steps")->excludes(command.get_option("--epochs"));
  AddOption(command, "--seed", arguments.seed, "S",
            "All randomness is a function of it (run.seed)");
  AddOption(command, "--initial-weights", arguments.initial_weights, "FILE",
            "Start from these weights: a safetensors file of a run or of PyTorch "
            "(run.initial_weights)");
  AddSkipMismatched(command, arguments)->needs(command.get_option("--initial-weights"));
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
      ->check(WholeNumber(1, 1000));
  launch.add_flag("--dry-run", arguments.dry_run,
                  "Print what would run (config, ranks, steps, memory); start and write nothing");
  for (const char* const option : {"--repeat", "--dry-run"}) {
    launch.get_option("--resume")->excludes(launch.get_option(option));
  }
  launch.add_flag("--log-placement", arguments.log_placement,
                  "Print where each rank runs: host, pid, card or cpu, threads, cores");
  AddOption(launch, "--devices", arguments.devices, "LIST",
            "Cards (GPUs), one a worker (worker.devices): auto, auto:N, cpu, or some of those that "
            "`muster gpus` shows: 0,2,GPU-8f3a");
  AddWait(launch, arguments);
  AddOption(launch, "--trace", arguments.trace, "FILE",
            "Write what every thread does in some steps to FILE (run.trace_file), for "
            "https://ui.perfetto.dev and `muster trace`");
  AddOption(launch, "--trace-steps", arguments.trace_steps, "A-B",
            "Which steps, counted from 0 (run.trace_first_step, run.trace_steps); default: 20-29");
  launch.footer(kLaunchFooter);
}

void DescribeGpus(CLI::App& gpus, Arguments& arguments) {
  gpus.add_flag("--json", arguments.json, "Print one JSON object instead");
  AddOptionalNumber(gpus, "--watch", arguments.watch_seconds, 2, 0.1, 86'400, "SECONDS",
                    "Look again and again (alone: every 2 s)");
  gpus.add_flag("--check", arguments.check,
                "Multiply on each idle card and add on the CPU, to see that they compute");
  gpus.footer(kGpusFooter);
  CLI::App* const run =
      gpus.add_subcommand("run", "Run any program on idle cards, locked as a job's are");
  run->add_option("-n,--cards", arguments.cards, "How many cards")
      ->type_name("N")
      ->check(WholeNumber(1, kMostWorkers))
      ->capture_default_str();
  AddWait(*run, arguments);
  run->add_option("COMMAND", arguments.command, "After --: the program and its arguments")
      ->type_name("WORD");
  run->footer(kGpusRunFooter);
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

// CLI11 would list 24 units.
CLI::Validator ByteSize() {
  return {[as_size = CLI::AsSizeValue(true)](std::string& text) {
            try {
              std::string bytes = text;
              if (const std::string error = as_size(bytes); error.empty()) {
                text = bytes;
                return std::string();
              }
            } catch (const CLI::ValidationError&) {
            }
            return fmt::format("expected bytes, as in 400MB (10^6) or 64MiB (2^20), got {}", text);
          },
          ""};
}

// `text` is a number of bytes by now. CLI::Range would speak of "1024.000000 to 4000000000.000000".
std::string CheckModelSize(const std::string& text) {
  const double bytes = std::strtod(text.c_str(), nullptr);
  return bytes >= 1024 && bytes <= 4e9 ? "" : "expected 1KiB to 4GB, got " + text + " bytes";
}

void DescribeBench(CLI::App& bench, Arguments& arguments) {
  CLI::Option* const size =
      bench
          .add_option("--size", arguments.size,
                      "Bytes of the model's weights: 400MB (10^6), 64MiB (2^20); default: 32MiB")
          ->type_name("BYTES")
          ->transform(ByteSize())
          ->check(CheckModelSize);
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
      ->check(WholeNumber(1, 64));
  bench.add_flag("--json", arguments.json, "Print one JSON object instead");
  bench.footer(kBenchFooter);
}

void DescribeRuns(CLI::App& runs, Arguments& arguments) {
  runs.add_option("DIR", arguments.runs_dir, "Where the run directories are")
      ->type_name("PATH")
      ->capture_default_str();
  runs.add_flag("--json", arguments.json, "Print a JSON array instead");
  runs.footer(kRunsFooter);
}

void DescribePlot(CLI::App& plot, Arguments& arguments) {
  plot.add_option("RUN_DIR", arguments.run_dirs, "The run directories")
      ->required()
      ->type_name("PATH ...");
  AddOption(
      plot, "--output", arguments.output, "FILE",
      "FILE.svg or FILE.png; default: plot.svg and plot.png, in the run directory of one run, "
      "here of several");
  plot.add_option("--axis", arguments.axis, "What is to the right: step, epoch or time")
      ->type_name("NAME")
      ->check(OneOf({"step", "epoch", "time"}))
      ->capture_default_str();
}

void DescribeDoctor(CLI::App& doctor, Arguments& arguments) {
  doctor.add_option("CONFIG", arguments.config, "Also, whether this config would run here")
      ->type_name("FILE");
  doctor.add_option("--set", arguments.set, "Any setting of the config; may be repeated")
      ->type_name("PATH.TO.KEY=VALUE")
      ->allow_extra_args(false)
      ->needs("CONFIG");
  AddOption(doctor, "--workers", arguments.workers, "N", "Worker processes (cluster.workers)");
  AddOption(doctor, "--data", arguments.data, "DIR", "Directory of the data (data.dir)");
  AddOption(doctor, "--run-dir", arguments.run_dir, "DIR", "Where the run's files would go");
  for (const char* option : {"--workers", "--data", "--run-dir"}) {
    doctor.get_option(option)->needs("CONFIG");
  }
  doctor.footer("Exit codes: 0 runs would work, 1 something is wrong, 2 command line or config.");
}

void DescribeTop(CLI::App& top, Arguments& arguments) {
  top.add_option("RUN_DIR", arguments.dir, "The directory of the run")
      ->required()
      ->type_name("PATH");
  top.add_flag("--once", arguments.once, "Print it once, also on a terminal");
  top.footer(kTopFooter);
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
      ->check(WholeNumber(0, std::numeric_limits<uint64_t>::max()))
      ->capture_default_str();
  synth->add_option("--train", arguments.synth_train, "Training images, a multiple of 5")
      ->type_name("N")
      ->check(WholeNumber(1, kMostImages))
      ->capture_default_str();
  synth->add_option("--test", arguments.synth_test, "Test images")
      ->type_name("N")
      ->check(WholeNumber(1, kMostImages))
      ->capture_default_str();
}

}  // namespace

void AddCommands(CLI::App& app, Arguments& arguments) {
  app.set_version_flag("--version", "muster " MUSTER_VERSION);
  app.require_subcommand(1);
  CLI::App* const launch = app.add_subcommand("launch", "Train: start a server and its workers");
  DescribeLaunch(*launch, arguments);
  CLI::App* const inspect =
      app.add_subcommand("inspect", "Show a config's network, or what is in a file of weights");
  DescribeInspect(*inspect, arguments);
  CLI::App* const import =
      app.add_subcommand("import", "Take over weights of PyTorch's, for a run to start from");
  DescribeImport(*import, arguments);
  CLI::App* const exported =
      app.add_subcommand("export", "Write a run's weights as safetensors, npz or onnx");
  DescribeExport(*exported, arguments);
  CLI::App* const eval = app.add_subcommand("eval", "Evaluate a run's weights on the test set");
  DescribeEval(*eval, arguments);
  CLI::App* const predict =
      app.add_subcommand("predict", "Show what a network makes of single samples");
  DescribePredict(*predict, arguments);
  CLI::App* const trace = app.add_subcommand("trace", "Sum up a trace that launch --trace wrote");
  DescribeTrace(*trace, arguments);
  CLI::App* const bench =
      app.add_subcommand("bench", "Measure how fast this machine averages and updates");
  DescribeBench(*bench, arguments);
  CLI::App* const gpus =
      app.add_subcommand("gpus", "Show the cards (GPUs) of this machine and who uses them");
  DescribeGpus(*gpus, arguments);
  CLI::App* const data = app.add_subcommand("data", "Get or make the data");
  DescribeData(*data, arguments);
  CLI::App* const server =
      app.add_subcommand("server", "Start a server whose workers come by hand");
  DescribeServer(*server, arguments);
  CLI::App* const worker =
      app.add_subcommand("worker", "Start one worker by hand, here or elsewhere");
  DescribeWorker(*worker, arguments);
  CLI::App* const runs = app.add_subcommand("runs", "List the runs in a directory");
  DescribeRuns(*runs, arguments);
  CLI::App* const doctor = app.add_subcommand("doctor", "Say whether runs would work here");
  DescribeDoctor(*doctor, arguments);
  CLI::App* const top = app.add_subcommand("top", "Look in on a run, from any terminal");
  DescribeTop(*top, arguments);
  CLI::App* const plot = app.add_subcommand("plot", "Draw the curves of runs, as SVG and PNG");
  DescribePlot(*plot, arguments);
  CLI::App* const token =
      app.add_subcommand("token", "Make a job token for processes started by hand");
  token->add_option("FILE", arguments.token_file, "A new file; default: standard output")
      ->type_name("PATH");
  app.footer(kExamples);  // last: a command would inherit it
}

}  // namespace muster
