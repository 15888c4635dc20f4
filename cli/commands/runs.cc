// `muster runs`.
#include "cli/commands/options.h"
#include "cli/view/runs_command.h"

namespace muster {
namespace {

struct RunsOptions {
  std::string dir = "runs";
  bool json = false;
};

constexpr const char* kRunsFooter =
    "A run is running as long as its server lives, whoever started it; killed, if its server "
    "is gone and left no last line of metrics; not begun, if it never came to its first "
    "step. On a terminal that is too narrow some columns are left out.\n"
    "\n"
    "Exit codes: 0 done, 2 no such directory.";

void DescribeRuns(CLI::App& command, RunsOptions& options) {
  command.add_option("DIR", options.dir, "Where the run directories are")
      ->type_name("PATH")
      ->capture_default_str();
  command.add_flag("--json", options.json, "Print a JSON array instead");
  command.footer(kRunsFooter);
}

}  // namespace

void AddRuns(CLI::App& app, Action& action) {
  AddCommand<RunsOptions>(
      app, action, "runs", "List the runs in a directory", DescribeRuns,
      [](const RunsOptions& options) { return ListRuns(options.dir, options.json); });
}

}  // namespace muster
