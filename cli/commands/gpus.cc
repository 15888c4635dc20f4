// `muster gpus` and `muster gpus run`.
#include "cli/commands/options.h"
#include "cli/gpu/gpus_command.h"
#include "common/base/error.h"

namespace muster {
namespace {

constexpr const char* kGpusFooter =
    "Memory is in MiB, as in nvidia-smi. A narrow terminal shows fewer columns. `taken`: a Muster "
    "job or `muster gpus run` has locked the "
    "GPU. `busy`: another program computes on it. Jobs that wait for GPUs are shown too. Without "
    "an NVIDIA driver, prints one line that says so (--json: an empty list), with exit code 0.";

constexpr const char* kGpusRunFooter =
    "The command gets the UUIDs of its GPUs in CUDA_VISIBLE_DEVICES. No other Muster job or "
    "`muster gpus run` takes them until the command and all processes that it started have "
    "ended.\n"
    "\n"
    "Examples:\n"
    "  muster gpus run -- python train.py\n"
    "  muster gpus run --or-cpu -- python train.py\n"
    "  muster gpus run -n 2 --wait 120 -- torchrun --nproc-per-node 2 train.py\n"
    "\n"
    "Exit codes: the command's; 1 not enough idle GPUs; 2 command line; 5 none within --wait.";

struct GpusOptions {
  bool json = false;
};

void DescribeGpus(CLI::App& command, GpusOptions& options) {
  command.add_flag("--json", options.json, "Print a JSON object instead of text");
  command.footer(kGpusFooter);
}

struct GpusRunOptions {
  int count = 1;
  bool or_cpu = false;
  std::optional<double> wait_minutes;
  std::vector<std::string> command;
};

void DescribeRun(CLI::App& command, GpusRunOptions& options) {
  command.add_option("-n,--gpus", options.count, "Number of GPUs")
      ->type_name("N")
      ->check(WholeNumber(1, kMostWorkers))
      ->capture_default_str();
  AddWait(command, options.wait_minutes);
  command.add_flag("--or-cpu", options.or_cpu,
                   "If there are not enough idle GPUs, run the command without any");
  command.add_option("COMMAND", options.command, "After --: the program and its arguments")
      ->type_name("WORD");
  command.footer(kGpusRunFooter);
}

int Show(const GpusOptions& options) { return RunGpus(options.json); }

int DoGpusRun(const GpusRunOptions& options, const std::vector<std::string>& behind) {
  if (!options.command.empty() && !behind.empty()) {
    throw Error(ExitCode::kUsage,
                "put -- before the command: muster gpus run [OPTIONS] -- COMMAND …");
  }
  const std::vector<std::string>& command = behind.empty() ? options.command : behind;
  if (command.empty()) {
    throw Error(ExitCode::kUsage, "the command is missing: muster gpus run [OPTIONS] -- COMMAND …");
  }
  RunWithGpus({.count = options.count,
               .wait_s = 60 * options.wait_minutes.value_or(0),
               .or_cpu = options.or_cpu,
               .command = command});
}

}  // namespace

void AddGpus(CLI::App& app, Action& action) {
  CLI::App* const gpus = AddCommand<GpusOptions>(
      app, action, "gpus", "Show this machine's GPUs and who uses them", DescribeGpus, Show);
  CLI::App* const run = gpus->add_subcommand("run", "Lock idle GPUs and run any program on them");
  const auto options = std::make_shared<GpusRunOptions>();
  DescribeRun(*run, *options);
  run->callback([&action, options] {
    action = [options](const std::vector<std::string>& behind) {
      return DoGpusRun(*options, behind);
    };
  });
}

}  // namespace muster
