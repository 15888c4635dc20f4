// `muster verify`.
#include "cli/commands/options.h"
#include "cli/data/count_samples.h"
#include "cli/verify/verify_command.h"

namespace muster {
namespace {

struct VerifyOptions {
  std::string run;
  ConfigOptions config;
  std::optional<double> wait_minutes;
  bool last = false, json = false;
};

constexpr const char* kVerifyFooter =
    "Trains again from the oldest checkpoint in RUN_DIR to the newest one, and compares the state "
    "with every checkpoint on the way: weights, optimizer state, moving average, number of "
    "updates, sums of losses, and the effects of evaluations. All must have the same bits, on any "
    "number of workers. Stops at the first difference and names the step, the checkpoint and the "
    "tensor. Does not change RUN_DIR. A run keeps two checkpoints by default; set "
    "checkpoint.keep_last or checkpoint.keep_best to keep more.\n"
    "\n"
    "Another processor, oneDNN version or worker.threads may give different bits; the message "
    "mentions it.\n"
    "\n"
    "Examples:\n"
    "  muster verify runs/a\n"
    "  muster verify runs/a --last --workers 1\n"
    "  muster verify runs/a --set cluster.transport=TCP --json\n"
    "\n"
    "Exit codes: 0 the same bits; 1 a difference (one line on standard output); 2 command "
    "line, or checkpoints of fewer than two steps; 3 a checkpoint is damaged; for others see "
    "`muster launch --help`.";

void DescribeVerify(CLI::App& command, VerifyOptions& options) {
  AddOption(command, "RUN_DIR", options.run, "PATH",
            "A run directory, or latest; the run may be in progress")
      ->required();
  command.add_flag("--last", options.last,
                   "Start from the second newest checkpoint instead of the oldest");
  options.config.AddShorthand(command, "--workers", "cluster.workers", "N",
                              "Number of worker processes; default: the run's");
  options.config.AddShorthand(command, "--data", "data.dir", "DIR",
                              "Data directory; default: the run's");
  options.config.AddShorthand(command, "--devices", "worker.devices", "LIST",
                              "GPUs, one per worker, as for launch");
  AddWait(command, options.wait_minutes);
  options.config.AddSet(command,
                        "Change a setting that may differ in a resumed run; may be repeated");
  command.add_flag("--json", options.json, "Print a JSON object instead of text");
  command.footer(kVerifyFooter);
}

int DoVerify(const VerifyOptions& options) {
  return RunVerify({.run = RunNamed(options.run),
                    .settings = options.config.settings(),
                    .last = options.last,
                    .json = options.json,
                    .wait_s = 60 * options.wait_minutes.value_or(0),
                    .server_program = Sibling("muster-server"),
                    .worker_program = Sibling("muster-worker"),
                    .count_data = CountSamples});
}

}  // namespace

void AddVerify(CLI::App& app, Action& action) {
  AddCommand<VerifyOptions>(app, action, "verify", "Repeat a run and compare the bits",
                            DescribeVerify, DoVerify);
}

}  // namespace muster
