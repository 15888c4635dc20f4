// A test of the command line of the real program, with fake servers and workers.
#pragma once

#include <gmock/gmock-more-matchers.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "tests/cli/job/job_fixture.h"

namespace muster::testing {

class CommandLineTest : public JobTest {
 protected:
  // A started process would leave this file.
  CommandLineTest() {
    Server("touch:" + Path("server-started"));
    Workers("touch:" + Path("worker-started"));
  }

  void ExpectRefused(const Finished& finished, const std::string& message) {
    EXPECT_EQ(finished.exit_code, 2);
    EXPECT_THAT(finished.out, ::testing::IsEmpty());
    EXPECT_THAT(finished.err, ::testing::StartsWith("muster: error: "));
    EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
    EXPECT_THAT(finished.err, ::testing::HasSubstr(message));
    EXPECT_FALSE(std::filesystem::exists(Path("server-started")));
    EXPECT_THAT(RunDirs(), ::testing::IsEmpty());
  }

  // Writes a config that names the directory of its runs.
  void WriteConfigFor(const std::string& run_dir, const std::string& path) {
    std::string text = ReadFile(config());
    text.insert(text.find("run {") + 5, " dir: '" + run_dir + "'");
    std::ofstream(path) << text;
  }
};

}  // namespace muster::testing
