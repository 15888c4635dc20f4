#include "cli/commands/options.h"

#include <fmt/core.h>

#include <cstdlib>
#include <limits>

#include "cli/commands/help_text.h"
#include "cli/commands/job_options.h"
#include "cli/commands/model_options.h"
#include "cli/commands/option_kinds.h"
#include "common/base/version.h"

namespace muster {
namespace {

constexpr uint64_t kMostImages = 1'000'000'000;  // 3 TB

void DescribeGpus(CLI::App& gpus, Arguments& arguments) {
  gpus.add_flag("--json", arguments.json, "Print one JSON object instead");
  AddOptionalNumber(gpus, "--watch", arguments.watch_seconds, 2, 0.1, 86'400, "SECONDS",
                    "Look again and again (alone: every 2 s)");
  gpus.footer(kGpusFooter);
  CLI::App* const run =
      gpus.add_subcommand("run", "Run any program on idle GPUs, locked as a job's are");
  run->add_option("-n,--cards", arguments.cards, "How many GPUs")
      ->type_name("N")
      ->check(WholeNumber(1, kMostWorkers))
      ->capture_default_str();
  AddWait(*run, arguments);
  run->add_option("COMMAND", arguments.command, "After --: the program and its arguments")
      ->type_name("WORD");
  run->footer(kGpusRunFooter);
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
  trace.footer(kTraceFooter);
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
  AddSettings(bench, arguments, "Any setting of that config; may be repeated")->needs(model);
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
      ->type_name("PATH");
  AddOption(plot, "--output", arguments.output, "FILE",
            "FILE.svg; default: plot.svg, in the run directory of one run, here of several");
  plot.add_option("--axis", arguments.axis, "What is to the right: step, epoch or time")
      ->type_name("NAME")
      ->check(OneOf({"step", "epoch", "time"}))
      ->capture_default_str();
  plot.footer(kPlotFooter);
}

void DescribeDoctor(CLI::App& doctor, Arguments& arguments) {
  doctor.add_option("CONFIG", arguments.config, "Also, whether this config would run here")
      ->type_name("FILE");
  AddSettings(doctor, arguments, "Any setting of the config; may be repeated")->needs("CONFIG");
  AddOption(doctor, "--workers", arguments.workers, "N", "Worker processes (cluster.workers)");
  AddOption(doctor, "--data", arguments.data, "DIR", "Directory of the data (data.dir)");
  AddOption(doctor, "--run-dir", arguments.run_dir, "DIR", "Where the run's files would go");
  AddOption(
      doctor, "--devices", arguments.devices, "LIST",
      "Also, whether these GPUs could be had now: auto, auto:N, or some of those that `muster "
      "gpus` shows (worker.devices)");
  for (const char* option : {"--workers", "--data", "--run-dir"}) {
    doctor.get_option(option)->needs("CONFIG");
  }
  doctor.footer(
      "Examples:\n"
      "  muster doctor\n"
      "  muster doctor configs/cifar10.txtpb --data data --workers 2\n"
      "  muster doctor configs/cifar10.txtpb --data data --devices auto:4\n"
      "\n"
      "Exit codes: 0 runs would work, 1 something is wrong, 2 command line or config.");
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
  get->footer(kDataFooter);
  get->add_option("DATASET", arguments.dataset, "Its name: cifar10 (170 MB) or mnist (12 MB)")
      ->required()
      ->type_name("NAME");
  get->add_option("DIR", arguments.dir, "The folder to put it in")->required()->type_name("PATH");
  CLI::App* synth = data.add_subcommand(
      "synth", "Make a procedural set of images in CIFAR-10's layout, for work without a network");
  synth->footer(kDataFooter);
  synth->add_option("DIR", arguments.dir, "The folder to put it in")->required()->type_name("PATH");
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
  app.set_version_flag("--version", std::string("muster ") + kVersion);
  app.require_subcommand(1);
  CLI::App* const launch = app.add_subcommand("launch", "Train: start a server and its workers");
  DescribeLaunch(*launch, arguments);
  CLI::App* const inspect =
      app.add_subcommand("inspect", "Show a config's network, or what weights a run or file has");
  DescribeInspect(*inspect, arguments);
  CLI::App* const import =
      app.add_subcommand("import", "Make a file of PyTorch's weights fit a config's network");
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
      app.add_subcommand("gpus", "Show the GPUs of this machine and who uses them");
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
  CLI::App* const plot = app.add_subcommand("plot", "Draw the curves of runs, as SVG");
  DescribePlot(*plot, arguments);
  CLI::App* const token =
      app.add_subcommand("token", "Make a job token for processes started by hand");
  token->add_option("FILE", arguments.token_file, "A new file; default: standard output")
      ->type_name("PATH");
  token->footer(kTokenFooter);
  app.footer(kExamples);  // last: a command would inherit it
}

}  // namespace muster
