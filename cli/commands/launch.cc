// `muster launch`.
#include "cli/commands/job_options.h"
#include "cli/data/count_samples.h"
#include "cli/data/normalization.h"

namespace muster {
namespace {

struct LaunchOptions : JobOptions {
  int repeat = 0;
  bool dry_run = false, verbose = false, log_placement = false;
  std::optional<double> wait_minutes;  // for GPUs
};

constexpr const char* kLaunchFooter =
    "Examples:\n"
    "  muster launch configs/smoke.txtpb             two seconds, without any data\n"
    "  muster launch configs/cifar10.txtpb --data data --workers 2 --epochs 3\n"
    "  muster launch configs/cifar10.txtpb --data data --set learning_rate.base=0.05\n"
    "  muster launch configs/cifar10.txtpb --data data --dry-run\n"
    "  muster launch --resume runs/NAME --epochs 20\n"
    "\n"
    "Settings worth knowing (--set; all of them with default, unit and range: "
    "proto/config.proto):\n"
    "  run.global_batch=128          images per step, all workers together\n"
    "  run.batch_per_worker=64       the same by worker, so that it grows with them; one of "
    "the two\n"
    "  run.slices=8                  parts of a batch: the same number gives the same bits "
    "on any number of workers\n"
    "  run.log_every_steps=10        how often a line is written\n"
    "  cluster.transport=tcp         loopback TCP instead of shared memory (names in any "
    "case)\n"
    "  learning_rate.base=0.05       model.layer[fc1].dense.units=192\n"
    "  evaluation.every_epochs=2     worker.threads=1   server.threads=2\n"
    "  evaluation.stop_at_accuracy=0.9   evaluation.confusion_matrix=true\n"
    "  evaluation.patience=5         stop after so many evaluations without a better one\n"
    "  deadlines.start_s=60          how long to wait for the workers to join\n"
    "\n"
    "Files in the run directory: config.txtpb (every setting; launching from it repeats the "
    "run), metrics.jsonl (a JSON object per logging interval and evaluation, the summary "
    "last), server.log, worker-RANK.log; model.safetensors (the weights, however the run "
    "ends) and best.safetensors (of the best evaluation); checkpoints/; "
    "events.out.tfevents... (tensorboard --logdir runs), status.json (muster top); "
    "confusion_matrix.csv if asked for. With --repeat: "
    "seed-S/ for each run, and repeat.json.\n"
    "\n"
    "--resume RUN_DIR goes on from the newest checkpoint (by default one after each epoch, "
    "and at the end; SIGUSR1 writes one now), with the same bits as a run that never "
    "stopped. --workers may differ, and --epochs or --steps be raised where the learning "
    "rate does not depend on them.\n"
    "\n"
    "--resume auto, with CONFIG and --run-dir, goes on with the run in that directory, or begins "
    "it: one command for a scheduler that starts a job again. A server that is killed or crashes "
    "is started again in any case, up to run.max_restarts times.\n"
    "\n"
    "--trace FILE is written when the run ends. A trace that is there already is replaced, any "
    "other "
    "file refused. Where writing fails, or the run ends before the steps to trace, an otherwise "
    "good "
    "run ends with exit code 1.\n"
    "\n"
    "Ctrl-C (SIGINT), SIGTERM and SIGHUP stop every process within 5 s, or when state and "
    "weights are on the disk; a second one kills at once. No process outlives the launcher, "
    "not even when it is killed.\n"
    "\n"
    "Exit codes:\n"
    "  0    completed, also when an evaluation stopped it early; a dry run\n"
    "  1    a failure that has no code of its own (the message says which)\n"
    "  2    command line, config, or too old a processor; nothing was started\n"
    "  3    a data file, weights or every checkpoint is missing, damaged or foreign\n"
    "  4    a loss, gradient or weight was not finite; rank, step and variable are named\n"
    "  5    a wait ran into its deadline, also that for a sign of life of a process\n"
    "  6    the server or a worker was killed or crashed\n"
    "  7    another process of the job was lost, and nothing says how it ended\n"
    "  8    a worker was refused (token, version, data), or a GPU failed its test\n"
    "  130  stopped by Ctrl-C (SIGINT)\n"
    "  143  stopped by SIGTERM or SIGHUP";

void DescribeLaunch(CLI::App& command, LaunchOptions& options) {
  options.Add(command);
  CLI::Option* const resume = command.get_option("--resume");
  command
      .add_option("--repeat", options.repeat,
                  "Run N times, with seeds S ... S+N-1, and show mean and deviation")
      ->type_name("N")
      ->check(WholeNumber(1, 1000))
      ->excludes(resume);
  command
      .add_flag("--dry-run", options.dry_run,
                "Print what would run (ranks, steps, memory); start and write nothing")
      ->excludes(resume);
  command.add_flag("--verbose", options.verbose, "With --dry-run: also every setting as resolved")
      ->needs("--dry-run");
  command.add_flag("--log-placement", options.log_placement,
                   "Print where each rank runs: host, pid, GPU or cpu, threads, cores");
  options.config.AddShorthand(
      command, "--devices", "worker.devices", "LIST",
      "GPUs, one a worker (worker.devices): auto, auto:N, cpu, or some of those that `muster "
      "gpus` shows: 0,2,GPU-8f3a. Default: an idle GPU for each of --workers, else one; the "
      "CPU where none is idle");
  AddWait(command, options.wait_minutes);
  options.config.AddShorthand(
      command, "--trace", "run.trace_file", "FILE",
      "Write what every thread does in some steps to FILE (run.trace_file), for "
      "https://ui.perfetto.dev and `muster trace`");
  options.config.AddTraceSteps(command);
  command.footer(kLaunchFooter);
}

int DoLaunch(const LaunchOptions& options) {
  LaunchArguments arguments = options.arguments();
  arguments.repeat = options.repeat;
  arguments.log_placement = options.log_placement;
  arguments.verbose = options.verbose;
  arguments.wait_s = 60 * options.wait_minutes.value_or(0);
  arguments.count_data = CountSamples;
  arguments.measure = MeasureNormalization;
  return options.dry_run ? DryRun(arguments) : RunLaunch(arguments);
}

}  // namespace

void AddLaunch(CLI::App& app, Action& action) {
  AddCommand<LaunchOptions>(app, action, "launch", "Train: start a server and its workers",
                            DescribeLaunch, DoLaunch);
}

}  // namespace muster
