// The examples in help texts are valid command lines.
#include <gmock/gmock-more-matchers.h>

#include <CLI/CLI.hpp>
#include <sstream>

#include "cli/commands/commands.h"
#include "tests/cli/job/job_fixture.h"

namespace muster::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Help : public JobTest {
 protected:
  // Adds the names of all commands: "launch", "data", "data get", …
  static void AddNames(const CLI::App& app, const std::string& prefix,
                       std::vector<std::string>& names) {
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(prefix + command->get_name());
      AddNames(*command, names.back() + " ", names);
    }
  }
  static std::vector<std::string> Commands() {
    Action action;
    CLI::App app;
    AddCommands(app, action);
    std::vector<std::string> names;
    AddNames(app, "", names);
    return names;
  }
  std::string TextOf(const std::string& command) {
    std::istringstream in(command);
    std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
    words.emplace_back("--help");
    const Finished finished = Run(words);
    EXPECT_EQ(finished.exit_code, 0) << command;
    return finished.out;
  }
};

// The command lines below "Examples:", without the remarks beside them.
std::vector<std::string> ExamplesIn(const std::string& help) {
  std::vector<std::string> examples;
  std::istringstream lines(help.substr(std::min(help.find("\nExamples:\n"), help.size())));
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);
  for (bool goes_on = false; std::getline(lines, line) && line.starts_with("  ");) {
    const size_t begin = line.find_first_not_of(' ');
    if (!goes_on && line.find("muster ") == std::string::npos) continue;
    if (!goes_on && begin > 2) continue;  // a remark
    const bool before = goes_on;
    line = line.substr(begin, line.find("  ", begin) - begin);
    goes_on = line.ends_with('\\');
    if (goes_on) line.pop_back();
    if (before) {
      examples.back() += line;
    } else {
      examples.push_back(line.substr(line.find("muster ") + 7));  // MUSTER_TOKEN=… muster …
    }
  }
  return examples;
}

std::string TroubleWith(const std::string& example) {
  Action action;
  CLI::App app;
  AddCommands(app, action);
  try {
    app.parse(
        example.substr(0, example.find(" -- ")));  // the rest is another program's command line
  } catch (const CLI::ParseError& error) {
    return error.get_name() + ": " + error.what();
  }
  return "";
}

TEST_F(Help, EveryExampleIsUnderstood) {
  std::vector<std::string> commands = Commands();
  ASSERT_GT(commands.size(), 15u);
  commands.emplace_back("");
  int seen = 0;
  for (const std::string& command : commands) {
    for (const std::string& example : ExamplesIn(TextOf(command))) {
      ++seen;
      EXPECT_EQ(TroubleWith(example), "") << "muster " << command << " --help: muster " << example;
      EXPECT_THAT(example, Not(HasSubstr("..."))) << example;
    }
  }
  EXPECT_GE(seen, 40);
  EXPECT_NE(TroubleWith("import theirs.safetensors --config x.txtpb"), "");  // the check can fail
}

// Exit codes and descriptions of options are aligned.
TEST_F(Help, EveryCommandHasExitCodesAndAlignedOptions) {
  for (const std::string& command : Commands()) {
    const std::string help = TextOf(command);
    if (help.find("Subcommands:") == std::string::npos) {
      EXPECT_THAT(help, HasSubstr("Exit codes:")) << command;
    }
    // Descriptions of options start in one column, on all their lines.
    const size_t begin = std::min(help.find("\nOptions:\n"), help.size());
    std::istringstream options(help.substr(begin));
    std::string line;
    std::getline(options, line);
    std::getline(options, line);
    while (std::getline(options, line) && !line.empty()) {
      const size_t at = line.find_first_not_of(' ');
      EXPECT_TRUE(at == 30 || line.compare(at, 1, "-") == 0) << command << ": " << line;
    }
  }
}

TEST_F(Help, InspectChoosesWeightsAsTheOtherCommandsDo) {
  for (const std::string command : {"inspect", "export", "eval", "predict"}) {
    for (const char* const option : {"--best", "--last", "--ema", "--raw"}) {
      EXPECT_THAT(TextOf(command), HasSubstr(option)) << command;
    }
  }
}

}  // namespace
}  // namespace muster::testing
