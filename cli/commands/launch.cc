// `muster launch`.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "cli/cluster/given_rank.h"
#include "cli/commands/job_options.h"
#include "cli/data/count_samples.h"
#include "cli/data/normalization.h"
#include "cli/job/run_dir.h"
#include "cli/job/workers_in_slurm.h"
#include "cli/process/child_process.h"
#include "cli/process/held_file.h"
#include "cli/process/program_environment.h"
#include "cli/text/console.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/config/resolved.h"

namespace muster {
namespace {

constexpr const char* kSsh = "ssh";

struct LaunchOptions : JobOptions {
  int repeat = 0;
  bool dry_run = false, verbose = false, log_placement = false;
  std::optional<double> wait_minutes;  // how long to wait for GPUs
  std::string slurm;                   // options of sbatch
  bool print = false, no_slurm = false;
  std::string hosts, hostfile, ssh = kSsh;
  std::vector<std::string> behind;  // the command of worker.program
};

constexpr const char* kLaunchFooter =
    "Examples:\n"
    "  muster launch configs/smoke.txtpb             takes two seconds, needs no data\n"
    "  muster launch configs/cifar10.txtpb --data data --workers 2 --epochs 3\n"
    "  muster launch configs/cifar10.txtpb --data data --set learning_rate.base=0.05\n"
    "  muster launch configs/cifar10.txtpb --data data --dry-run\n"
    "  muster launch --resume runs/NAME --epochs 20\n"
    "  muster launch --workers 4 -- python3 train.py   your own program (worker.program)\n"
    "  muster launch job.txtpb --workers 4 -- ./train   the same, with a config\n"
    "  muster launch configs/cifar10.txtpb --data /data -H a:4,b:4   two hosts, over ssh\n"
    "\n"
    "Useful settings for --set (proto/config.proto describes all, with default, unit and "
    "range):\n"
    "  run.global_batch=128          images per step, all workers together\n"
    "  run.batch_per_worker=64       images per step and worker; replaces global_batch\n"
    "  run.slices=8                  parts of a batch; with the same number, the bits do not "
    "depend on the number of workers\n"
    "  run.log_every_steps=10        steps between two lines of output\n"
    "  cluster.transport=tcp         loopback TCP instead of shared memory\n"
    "  learning_rate.base=0.05       model.layer[fc1].dense.units=192\n"
    "  evaluation.every_epochs=2     worker.threads=1   server.threads=2\n"
    "  evaluation.stop_at_accuracy=0.9   evaluation.confusion_matrix=true\n"
    "  evaluation.patience=5         stop after 5 evaluations without improvement\n"
    "  deadlines.start_s=60          seconds to wait for the workers to join\n"
    "\n"
    "Files in the run directory:\n"
    "  config.txtpb                  every setting; launch it to repeat the run\n"
    "  metrics.jsonl                 JSON lines: metrics, evaluations, the summary\n"
    "  server.log, worker-RANK.log   logs; srun.log in a Slurm job, ssh.log with -H,\n"
    "                                relay.log with worker.gpu_sums\n"
    "  model.safetensors             the weights, however the run ends\n"
    "  best.safetensors              the weights of the best evaluation\n"
    "  checkpoints/                  what --resume continues from\n"
    "  events.out.tfevents...        for tensorboard --logdir runs\n"
    "  run.events                    the same and all other events, in binary form\n"
    "  confusion_matrix.csv          if evaluation.confusion_matrix is set\n"
    "--repeat writes seed-S/ for each run, and repeat.json.\n"
    "\n"
    "--resume RUN_DIR continues from the newest checkpoint, with the same bits as a run that "
    "never stopped. Checkpoints are written after each epoch (by default), at the end, and on "
    "SIGUSR1. --workers may change. --epochs or --steps may be raised if the learning rate does "
    "not depend on them.\n"
    "\n"
    "--resume auto, with CONFIG and --run-dir, resumes the run in that directory or starts it, so "
    "a scheduler can repeat the same command. The launcher restarts a server that is killed or "
    "crashes, up to run.max_restarts times.\n"
    "\n"
    "In a Slurm job of several nodes, one srun starts the workers on all of them, one for each "
    "task "
    "or GPU. A requeued job resumes its run in --run-dir, and SIGUSR1 and SIGTERM save the state "
    "and "
    "end the run. --slurm submits such a job.\n"
    "\n"
    "-H and --hostfile start the server here and the workers on the hosts of the list, with one "
    "ssh for each. ssh must log in without a question. Muster and the data are in the same place "
    "on all hosts; the run directory is only here. A table of the hosts comes first. If a host is "
    "lost, the others compute its slices.\n"
    "\n"
    "--trace FILE is written when the run ends. It replaces an older trace, but no other file. If "
    "writing fails, or the run ends before the steps to trace, the exit code of a successful run "
    "is 1.\n"
    "\n"
    "Ctrl-C (SIGINT), SIGTERM and SIGHUP stop every process within 5 s (with -H and a host that "
    "does not answer 11 s), or as soon as state and weights are saved. A second signal kills them "
    "at once, unless the first or second is SIGHUP. Under nohup no process ends by SIGHUP. No "
    "process "
    "outlives the launcher, even if the launcher is killed.\n"
    "\n"
    "Exit codes:\n"
    "  0    completed, early stopping and dry runs included\n"
    "  1    a failure without a code of its own (see the message)\n"
    "  2    wrong command line, config or processor; nothing was started\n"
    "  3    data, weights or all checkpoints are missing, damaged or of another job\n"
    "  4    a loss, gradient or weight was not finite (see rank, step and variable)\n"
    "  5    a deadline passed, or a process stopped responding\n"
    "  6    the server or a worker was killed or crashed\n"
    "  7    another process of the job was lost for an unknown reason\n"
    "  8    a worker was refused (token, version, data), or a GPU failed its test\n"
    "  130  stopped by Ctrl-C (SIGINT)\n"
    "  143  stopped by SIGTERM or SIGHUP; in a Slurm job also by SIGUSR1";

void DescribeLaunch(CLI::App& command, LaunchOptions& options) {
  options.Add(command, /*needs_config=*/false);
  CLI::Option* const resume = command.get_option("--resume");
  CLI::Option* const hosts =
      AddOption(command, "-H,--hosts", options.hosts, "LIST",
                "Hosts and their numbers of workers, such as a:4,user@b:2; this host may be one. "
                "The others are reached with ssh");
  CLI::Option* const hostfile = AddOption(command, "--hostfile", options.hostfile, "FILE",
                                          "The same, one host in a line: a slots=4")
                                    ->excludes(hosts);
  AddOption(command, "--ssh", options.ssh, "COMMAND",
            "With -H and --hostfile: instead of ssh, such as \"ssh -p 2222\"");
  CLI::Option* const slurm =
      AddOption(command, "--slurm", options.slurm, "OPTIONS",
                "Submit this launch to Slurm with these options of sbatch, such as \"-N 2 "
                "--ntasks-per-node 4 --gpus-per-node 4\"");
  command
      .add_flag("--print", options.print, "With --slurm: print the batch script, submit nothing")
      ->needs(slurm);
  command
      .add_flag("--no-slurm", options.no_slurm,
                "Start the workers on this host, even in a Slurm job of several nodes")
      ->excludes(slurm);
  slurm->excludes(hosts)->excludes(hostfile);
  command
      .add_option("--repeat", options.repeat,
                  "Run N times with seeds S to S+N-1, and print mean and standard deviation")
      ->type_name("N")
      ->check(WholeNumber(1, 1000))
      ->excludes(resume);
  command
      .add_flag(
          "--dry-run", options.dry_run,
          "Print what would run (ranks, steps, memory; of your own program the ranks) without "
          "starting or writing anything")
      ->excludes(resume)
      ->excludes(slurm);
  command.add_flag("--verbose", options.verbose,
                   "Also print where a step's time went; with --dry-run all resolved settings");
  command.add_flag("--log-placement", options.log_placement,
                   "Print where each rank runs: host, pid, GPU or CPU, threads, cores");
  options.config.AddShorthand(
      command, "--devices", "worker.devices", "LIST",
      "GPUs, one per worker (worker.devices): auto, auto:N, cpu, or a list from `muster gpus` such "
      "as 0,2,GPU-8f3a. Default: one idle GPU for each of --workers, or a single one without it; "
      "the CPU if none is idle");
  AddWait(command, options.wait_minutes);
  options.config.AddShorthand(
      command, "--trace", "run.trace_file", "FILE",
      "Record in FILE what every thread does in some steps (run.trace_file), for "
      "https://ui.perfetto.dev and `muster trace`");
  options.config.AddTraceSteps(command);
  command.footer(kLaunchFooter);
}

// --set worker.program with these words.
Setting ProgramSetting(const std::vector<std::string>& words) {
  std::string list;
  for (const std::string& word : words) {
    std::string quoted;
    for (const char c : word) {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c == '\n' ? "\\n" : std::string(1, c);
    }
    list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ", quoted);
  }
  return {"worker.program", "[" + list + "]", "the command after --"};
}

// What a launch without a config is named after: train of `python3 train.py --lr 0.1`.
std::string NameOf(const std::vector<std::string>& command) {
  if (!RunName(command[0]).starts_with("python")) return command[0];
  for (size_t i = 1; i < command.size() && command[i] != "-c"; ++i) {
    if (command[i] == "-m" && i + 1 < command.size()) return command[i + 1] + ".py";
    if (!command[i].starts_with('-')) return command[i];
  }
  return command[0];
}

void UseNoConfig(const std::vector<std::string>& behind, LaunchArguments& arguments) {
  if (arguments.config_path.ends_with(".py")) {
    throw Error(ExitCode::kUsage,
                "{0}: is a program, expected a config; to run it: muster launch --workers 4 -- "
                "python3 {0}",
                ShellWord(arguments.config_path));
  }
  if (!arguments.config_path.empty() || !arguments.resume.empty()) return;
  if (behind.empty()) {
    throw Error(
        ExitCode::kUsage,
        "CONFIG is missing: expected a config file, or a program of your own: muster launch "
        "--workers 4 -- python3 train.py");
  }
  arguments.config_path = NameOf(behind);
  arguments.has_config = false;
}

// The command line of the launch that the batch script runs. Shorthands become --set.
std::string LaunchLine(const LaunchOptions& options, const LaunchArguments& arguments,
                       bool has_dir) {
  std::string line = ShellWord(Sibling("muster")) + " launch";
  const auto add = [&](const std::string& option, const std::string& value) {
    for (const std::string& word : {option, value.empty() ? "" : ShellWord(value)}) {
      if (!word.empty()) line += " " + word;
    }
  };
  if (arguments.has_config && !arguments.config_path.empty()) add("", arguments.config_path);
  for (const Setting& setting : options.config.settings()) {
    add("--set", setting.path + "=" + setting.value);
  }
  if (!options.resume.empty()) {
    add("--resume", arguments.resume_or_begin ? options.resume : arguments.resume);
  }
  if (options.repeat > 0) add("--repeat", std::to_string(options.repeat));
  if (options.log_placement) add("--log-placement", "");
  if (options.verbose) add("--verbose", "");
  // The same directory after a requeue.
  if (!has_dir) {
    line += " --run-dir runs/" + ShellWord(RunName(arguments.config_path)) + "-job$SLURM_JOB_ID";
  }
  if (!options.behind.empty()) line += " --";
  for (const std::string& word : options.behind) line += " " + ShellWord(word);
  return line;
}

// Replaces this process with sbatch.
int Submit(const LaunchOptions& options, const LaunchArguments& arguments) {
  if (options.wait_minutes) {
    throw Error(ExitCode::kUsage,
                "--wait: the job waits in Slurm's queue for its GPUs; expected no --wait with "
                "--slurm");
  }
  const std::vector<std::string> words = BatchOptions(options.slurm);
  std::string name;
  bool has_dir = !options.resume.empty();
  if (arguments.config_path.empty()) {
    name = RunName(arguments.resume + "/config.txtpb");
  } else {
    name = RunName(arguments.config_path);
    // A mistake is reported now, not when the job begins.
    const std::string dir = RunDirFor(arguments);
    if (!has_dir && !dir.empty()) RunDir::CheckUnused(dir);
    if (const uint32_t nodes = NodesAskedFor(words); nodes > 1) {
      CheckForSlurm(
          arguments, {.nodes = nodes},
          LoadToLaunch(arguments.config_path, arguments.settings, arguments.has_config).config);
    }
    has_dir |= !dir.empty();
  }
  const std::string script = BatchScript({.options = options.slurm,
                                          .name = name,
                                          .launch = LaunchLine(options, arguments, has_dir),
                                          .can_resume = options.repeat == 0});
  if (options.print) {
    PrintResultAsIs(script);
    return 0;
  }
  const std::string sbatch = ProgramInPath("sbatch");
  if (sbatch.empty()) {
    throw Error(ExitCode::kFailure,
                "--slurm: there is no sbatch in PATH; use a host from which jobs are submitted");
  }
  for (const std::string& variable : VariablesOfOuterJob(ThisEnvironment())) {
    ::unsetenv(variable.c_str());
  }
  // Also as arguments, because variables such as SBATCH_PARTITION count more than the script.
  ReplaceProcess(sbatch, words, HeldFile::OfText(script).path());
}

// Adds the hosts that the user lists. If they are all this one, the launch is as any other.
void AddHosts(const LaunchOptions& options, LaunchArguments& arguments) {
  if (options.hosts.empty() && options.hostfile.empty()) {
    if (options.ssh == kSsh) return;
    throw Error(ExitCode::kUsage, "--ssh requires -H or --hostfile");
  }
  const bool typed = !options.hosts.empty();
  SshHosts hosts{.hosts = typed ? ParseHosts("-H", options.hosts) : ReadHostfile(options.hostfile),
                 .ssh = {.words = ParseSsh(options.ssh), .muster = Sibling("muster")}};
  const std::string origin = typed ? "-H " + options.hosts : "--hostfile " + options.hostfile;
  hosts.options =
      typed ? "-H " + ShellWord(options.hosts) : "--hostfile " + ShellWord(options.hostfile);
  if (options.ssh != kSsh) hosts.options += " --ssh " + ShellWord(options.ssh);
  const std::string workers = std::to_string(SlotsOf(hosts.hosts));
  for (const Setting& setting : arguments.settings) {
    if (setting.path != "cluster.workers" || setting.value == workers) continue;
    throw Error(ExitCode::kUsage,
                "{} and {}: expected the same number of workers; the hosts have "
                "{} slots",
                setting.origin, Shown(origin), workers);
  }
  arguments.settings.push_back({"cluster.workers", workers, Shown(origin)});
  arguments.slurm.reset();
  FindHere(Shown(origin), hosts.hosts);
  if (!std::ranges::all_of(hosts.hosts, &Host::here)) arguments.hosts = std::move(hosts);
}

// Each of several launches would train a run of its own. Of srun, FindSlurmJob says so.
void RefuseCopies() {
  const std::optional<GivenRank> given = FindGivenRankIfClear(ThisEnvironment());
  if (!given || !given->is_signed || given->size.value_or(1) < 2 || given->engine == "Slurm")
    return;
  throw Error(ExitCode::kUsage,
              "{0} has started {1} launches ({2}), each of a run of its own; expected one, which "
              "starts the workers itself: muster launch --workers {1}, on several hosts with -H "
              "a:4,b:4; or start single workers with {0} and muster worker --rank AUTO "
              "(docs/CLUSTER.md); for runs of their own, unset {2}",
              given->launcher, *given->size, given->size_variable);
}

int DoLaunch(const LaunchOptions& options) {
  RefuseCopies();
  LaunchArguments arguments = options.arguments();
  UseNoConfig(options.behind, arguments);
  if (!options.behind.empty()) arguments.settings.push_back(ProgramSetting(options.behind));
  if (!options.slurm.empty()) return Submit(options, arguments);
  if (!options.no_slurm) arguments.slurm = FindSlurmJob(ThisEnvironment());
  AddHosts(options, arguments);
  arguments.repeat = options.repeat;
  arguments.log_placement = options.log_placement;
  arguments.verbose = options.verbose;
  arguments.wait_s = 60 * options.wait_minutes.value_or(0);
  arguments.count_data = CountSamples;
  arguments.measure = MeasureNormalization;
  OfferPythonClient(arguments.worker_program);
  return options.dry_run ? DryRun(arguments) : RunLaunch(arguments);
}

}  // namespace

void AddLaunch(CLI::App& app, Action& action) {
  AddCommand<LaunchOptions>(app, action, "launch",
                            "Train a network: start a server and its workers", DescribeLaunch,
                            DoLaunch);
}

}  // namespace muster
