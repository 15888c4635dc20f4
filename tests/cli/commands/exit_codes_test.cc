// What documents say of the exit codes, of which common/base/error.h is authoritative, and of the
// protocol's version.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "cli/commands/commands.h"
#include "common/base/error.h"
#include "common/link/protocol.h"
#include "tests/base/paths.h"

namespace muster {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

std::string TextOf(const std::string& path) {
  std::ifstream file(SourcePath(path));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Maps codes to meanings: the two groups of the pattern.
std::map<int, std::string> Matches(const std::string& text, const std::string& pattern) {
  std::map<int, std::string> found;
  const std::regex regex(pattern);
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) {
    found[std::stoi((*at)[1])] = (*at)[2];
  }
  return found;
}

// Parses rows "| 3 | meaning |" below the header. The last row, "| 130, 143 | interrupted (Ctrl-C),
// terminated |", has two codes.
std::map<int, std::string> Table(const std::string& path, const std::string& header) {
  const std::string text = TextOf(path);
  const size_t begin = text.find(header);
  if (begin == std::string::npos) return {};
  const std::string table = text.substr(begin, text.find("\n\n", begin) - begin);
  std::map<int, std::string> rows = Matches(table, R"(\| (\d+) \| ([^|]*) \|)");
  if (table.find("| 130, 143 | interrupted (Ctrl-C), terminated |") != std::string::npos) {
    rows[130] = "interrupted";
    rows[143] = "terminated";
  }
  for (auto& [code, meaning] : rows) std::erase(meaning, '`');
  return rows;
}

std::map<int, std::string> InHelp() {
  Action action;
  CLI::App app;
  AddLaunch(app, action);
  return Matches(app.get_subcommand("launch")->get_footer(), R"(\n  (\d+) +([^\n]+))");
}

std::vector<int> CodesOf(const std::map<int, std::string>& rows) {
  std::vector<int> codes;
  for (const auto& [code, meaning] : rows) codes.push_back(code);
  return codes;
}

TEST(ExitCodesTest, EveryTableHasEachCode) {
  std::vector<int> truth;
  const std::string header = TextOf("common/base/error.h");
  const std::regex enumerator(R"(\bk\w+ = (\d+),)");
  for (std::sregex_iterator at(header.begin(), header.end(), enumerator), end; at != end; ++at) {
    truth.push_back(std::stoi((*at)[1]));
  }
  ASSERT_EQ(truth.size(), 11u);
  EXPECT_EQ(truth.back(), static_cast<int>(ExitCode::kTerminated));
  EXPECT_THAT(CodesOf(Table("docs/TRAINING.md", "| code | meaning |")), ElementsAreArray(truth));
  EXPECT_THAT(CodesOf(InHelp()), ElementsAreArray(truth));
}

TEST(ExitCodesTest, TheyMeanTheSameEverywhere) {
  const auto help = InHelp();
  for (const auto& [code, meaning] : Table("docs/TRAINING.md", "| code | meaning |")) {
    if (code < static_cast<int>(ExitCode::kInterrupted)) {
      EXPECT_EQ(help.at(code), meaning) << code;
    }
  }
}

TEST(ProtocolVersion, IsTheSameInAllDocuments) {
  const std::string version = std::to_string(kProtocolVersion);
  EXPECT_THAT(TextOf("proto/PROTOCOL.md"), HasSubstr("\n\nVersion " + version + ". "));
  EXPECT_THAT(TextOf("proto/PROTOCOL.md"), HasSubstr(" version " + version + " "));
  EXPECT_THAT(TextOf("CHANGELOG.md"), HasSubstr("wire protocol " + version + ","));
}

}  // namespace
}  // namespace muster
