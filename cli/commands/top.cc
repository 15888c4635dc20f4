// `muster top`.
#include "cli/commands/options.h"
#include "cli/view/top_command.h"

namespace muster {
namespace {

struct TopOptions {
  std::string dir;
  bool once = false;
};

constexpr const char* kTopFooter =
    "Reads status.json of the run directory, which the run's server replaces each second, "
    "and asks nothing of the run: it may have been started by anybody, anyhow, and, on a "
    "shared disk, anywhere. Times are of each rank's last 200 steps: half of them took no "
    "longer than the first number, 99 of 100 no longer than the second. images/s is what a "
    "rank's compute and input would allow. No colours with the environment variable "
    "NO_COLOR. q or Ctrl-C: quit; the run goes on.\n"
    "\n"
    "Exit codes: 0 done, 1 status.json is damaged, 2 no such run, or it has no status yet, 3 "
    "status.json is no plain file.";

void DescribeTop(CLI::App& command, TopOptions& options) {
  command.add_option("RUN_DIR", options.dir, "The directory of the run")
      ->required()
      ->type_name("PATH");
  command.add_flag("--once", options.once, "Print it once, also on a terminal");
  command.footer(kTopFooter);
}

}  // namespace

void AddTop(CLI::App& app, Action& action) {
  AddCommand<TopOptions>(
      app, action, "top", "Look in on a run, from any terminal", DescribeTop,
      [](const TopOptions& options) { return WatchRun(options.dir, options.once); });
}

}  // namespace muster
