// `muster top`.
#include "cli/commands/options.h"
#include "cli/view/top_command.h"

namespace muster {
namespace {

struct TopOptions {
  std::string dir = kLatest;
  bool once = false, json = false;
};

constexpr const char* kTopFooter =
    "Reads the status in run.events in the run directory, which the server replaces every second, "
    "and does not contact the run. So it can show any run, even one on another host that shares "
    "the disk. Times are the median and the 99th percentile of each rank's last 200 steps. "
    "samples/s is the rate that a rank's compute and input would allow. Set NO_COLOR to turn off "
    "colors. q or Ctrl-C quits; the run continues.\n"
    "\n"
    "Exit codes: 0 done; 2 no such run, or it has no status yet; 3 run.events is not a regular "
    "file.";

void DescribeTop(CLI::App& command, TopOptions& options) {
  command.add_option("RUN_DIR", options.dir, "The run directory; latest: the newest one")
      ->type_name("PATH")
      ->capture_default_str();
  command.add_flag("--once", options.once, "Print the status once and exit");
  command.add_flag("--json", options.json,
                   "Print the status once, as JSON (Status in proto/events.proto)");
  command.footer(kTopFooter);
}

}  // namespace

void AddTop(CLI::App& app, Action& action) {
  AddCommand<TopOptions>(app, action, "top", "Watch a run from any terminal", DescribeTop,
                         [](const TopOptions& options) {
                           const std::string dir = RunNamed(options.dir);
                           return options.json ? PrintStatusJson(dir) : WatchRun(dir, options.once);
                         });
}

}  // namespace muster
