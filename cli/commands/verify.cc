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
    "Trains from the oldest checkpoint in RUN_DIR to the newest one, as the run did, and compares "
    "with every checkpoint on the way: weights, optimizer state, moving average, the count of "
    "updates, the sums of losses, and what follows from evaluations must have the same bits, on "
    "any number of workers. It stops at the first difference, and names the step, the checkpoint "
    "and the tensor. The directory is only read. A run keeps two checkpoints by default; "
    "checkpoint.keep_last or checkpoint.keep_best keeps more.\n"
    "\n"
    "Another processor, another oneDNN or another worker.threads may make other bits: the message "
    "says so.\n"
    "\n"
    "Examples:\n"
    "  muster verify runs/a\n"
    "  muster verify runs/a --last --workers 1\n"
    "  muster verify runs/a --set cluster.transport=TCP --json\n"
    "\n"
    "Exit codes: 0 the same bits; 1 a difference (one line on standard output); 2 command "
    "line, or fewer than two steps with a checkpoint; 3 a checkpoint is damaged; others as of "
    "`muster launch`.";

void DescribeVerify(CLI::App& command, VerifyOptions& options) {
  AddOption(command, "RUN_DIR", options.run, "PATH", "The directory of a run, also one under way")
      ->required();
  command.add_flag("--last", options.last,
                   "Only from the last checkpoint but one to the last, and not from the oldest");
  options.config.AddShorthand(command, "--workers", "cluster.workers", "N",
                              "Worker processes; default: as many as the run had");
  options.config.AddShorthand(command, "--data", "data.dir", "DIR",
                              "Directory of the data; default: the run's");
  options.config.AddShorthand(command, "--devices", "worker.devices", "LIST",
                              "GPUs, one a worker, as of launch");
  AddWait(command, options.wait_minutes);
  options.config.AddSet(command, "A setting that may change in a resumed run; may be repeated");
  command.add_flag("--json", options.json, "Print one JSON object instead");
  command.footer(kVerifyFooter);
}

int DoVerify(const VerifyOptions& options) {
  return RunVerify({.run = options.run,
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
  AddCommand<VerifyOptions>(app, action, "verify", "Do a run again, and compare the bits",
                            DescribeVerify, DoVerify);
}

}  // namespace muster
