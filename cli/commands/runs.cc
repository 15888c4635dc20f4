// `muster runs`.
#include "cli/commands/options.h"
#include "cli/view/runs_command.h"

namespace muster {
namespace {

constexpr const char* kRunsFooter =
    "States:\n"
    "  not begun    the run never reached its first step\n"
    "  disk full    the run could not record its end, because its disk was full\n"
    "  running      the server is alive, no matter who started it\n"
    "  completed    all steps are done, or the run ended early as configured\n"
    "  failed       the run ended with an error, which is in server.log\n"
    "  interrupted  a signal ended the run, as Ctrl-C does\n"
    "  killed       the server is gone and recorded no end\n"
    "Narrow terminals show fewer columns. The column \"differs\" has the settings that are not the "
    "same in all listed runs, by the ends of their names if these are clear; it leaves out those "
    "of "
    "the machine, the workers and the output.\n"
    "\n"
    "Examples:\n"
    "  muster runs --sort accuracy\n"
    "  muster runs --where state=completed --where learning_rate.base=0.1\n"
    "\n"
    "Exit codes: 0 done; 2 command line, or no such directory.";

void DescribeRuns(CLI::App& command, RunsArguments& options) {
  command.add_option("DIR", options.dir, "The directory that contains the run directories")
      ->type_name("PATH")
      ->capture_default_str();
  command
      .add_option(
          "--sort", options.sort,
          "Order: began, the oldest first, or the best first: accuracy, best, loss, time or "
          "samples/s, as in the columns of these names")
      ->type_name("COLUMN")
      ->check(OneOf(RunOrders()))
      ->capture_default_str();
  command
      .add_option("--where", options.where,
                  "Only list runs with this state, as in state=completed, or with this value of a "
                  "setting; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command.add_flag("--json", options.json, "Print a JSON array instead of text");
  command.footer(kRunsFooter);
}

}  // namespace

void AddRuns(CLI::App& app, Action& action) {
  AddCommand<RunsArguments>(app, action, "runs", "List the runs in a directory", DescribeRuns,
                            ListRuns);
}

}  // namespace muster
