// `muster token`.
#include "cli/commands/options.h"
#include "cli/job/workers_by_hand.h"
#include "cli/text/console.h"

namespace muster {
namespace {

struct TokenOptions {
  std::string file;
};

void DescribeToken(CLI::App& command, TokenOptions& options) {
  command.add_option("FILE", options.file, "A new file for the token; default: standard output")
      ->type_name("PATH");
  command.footer(
      "Examples:\n"
      "  muster token token\n"
      "\n"
      "Exit codes: 0 done; 2 FILE exists or cannot be written.");
}

int DoToken(const TokenOptions& options) {
  const std::string token = NewToken();
  if (options.file.empty()) {
    PrintResult(token);
    return 0;
  }
  WriteTokenFile(options.file, token);
  PrintResult("wrote a new job token, for --token-file: " + options.file);
  return 0;
}

}  // namespace

void AddToken(CLI::App& app, Action& action) {
  AddCommand<TokenOptions>(app, action, "token", "Make a job token for processes started by hand",
                           DescribeToken, DoToken);
}

}  // namespace muster
