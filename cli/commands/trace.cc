// `muster trace`.
#include "cli/commands/options.h"
#include "cli/text/console.h"
#include "cli/trace/merge.h"
#include "cli/trace/summary.h"

namespace muster {
namespace {

struct TraceOptions {
  std::string file;
  std::vector<std::string> parts;
};

constexpr const char* kTraceFooter =
    "Examples:\n"
    "  muster trace t.json\n"
    "  muster trace t.json --merge runs/a/trace.*.part\n"
    "\n"
    "Exit codes: 0 done; 1 FILE cannot be written; 2 command line; 3 a trace cannot be read.";

void DescribeTrace(CLI::App& command, TraceOptions& options) {
  command.add_option("FILE", options.file, "The trace that `muster launch --trace FILE` wrote")
      ->required()
      ->type_name("PATH");
  command
      .add_option("--merge", options.parts,
                  "First merge these parts into FILE: for processes started by hand, or if the "
                  "launcher could not")
      ->type_name("PART");
  command.footer(kTraceFooter);
}

int DoTrace(const TraceOptions& options) {
  if (!options.parts.empty())
    (void)MergeTrace(options.parts, options.file, MergeMode::kRefuseOthers);
  PrintRows(TraceSummary(ReadTrace(options.file)));
  return 0;
}

}  // namespace

void AddTrace(CLI::App& app, Action& action) {
  AddCommand<TraceOptions>(app, action, "trace", "Summarize a trace that launch --trace wrote",
                           DescribeTrace, DoTrace);
}

}  // namespace muster
