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
    "States:\n"
    "  not begun    the run never reached its first step\n"
    "  disk full    the run could not record its end, because its disk was full\n"
    "  running      the server is alive, no matter who started it\n"
    "  completed    all steps are done, or the run ended early as configured\n"
    "  failed       the run ended with an error, which is in server.log\n"
    "  interrupted  a signal ended the run, as Ctrl-C does\n"
    "  killed       the server is gone and recorded no end\n"
    "Narrow terminals show fewer columns.\n"
    "\n"
    "Exit codes: 0 done; 2 no such directory.";

void DescribeRuns(CLI::App& command, RunsOptions& options) {
  command.add_option("DIR", options.dir, "The directory that contains the run directories")
      ->type_name("PATH")
      ->capture_default_str();
  command.add_flag("--json", options.json, "Print a JSON array instead of text");
  command.footer(kRunsFooter);
}

}  // namespace

void AddRuns(CLI::App& app, Action& action) {
  AddCommand<RunsOptions>(
      app, action, "runs", "List the runs in a directory", DescribeRuns,
      [](const RunsOptions& options) { return ListRuns(options.dir, options.json); });
}

}  // namespace muster
