#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cli/commands/options.h"
#include "tests/data/temp_dir.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// An unpacked package or an installed tree with one config.
class FindConfigTest : public ::testing::TestWithParam<const char*> {
 protected:
  FindConfigTest() {
    config_ = prefix_ / GetParam() / "configs/of_package.txtpb";
    fs::create_directories(config_.parent_path());
    std::ofstream(config_) << "\n";
  }

  const testing::TempDir temp_;
  const fs::path prefix_ = temp_.path();
  fs::path config_;
};

TEST_P(FindConfigTest, WhatIsNotHereIsTakenFromBesideTheProgram) {
  EXPECT_EQ(fs::path(FindConfig("configs/of_package.txtpb", prefix_ / "bin")).lexically_normal(),
            config_.lexically_normal());
}

TEST_P(FindConfigTest, WhatIsHereIsNotReplaced) {
  // The same relative name, seen from the current folder, refers to another file.
  const fs::path mine = prefix_ / "mine.txtpb";
  std::ofstream(mine) << "\n";
  const std::string name = fs::relative(mine).string();
  EXPECT_EQ(FindConfig(name, prefix_ / "bin"), name);
  EXPECT_EQ(FindConfig(mine.string(), prefix_ / "bin"), mine.string());
}

TEST_P(FindConfigTest, WhatIsNowhereKeepsItsName) {
  EXPECT_EQ(FindConfig("configs/of_nobody.txtpb", prefix_ / "bin"), "configs/of_nobody.txtpb");
  EXPECT_EQ(FindConfig("configs", prefix_ / "bin"), "configs");  // a folder is not a config
  EXPECT_EQ(FindConfig("", prefix_ / "bin"), "");
}

INSTANTIATE_TEST_SUITE_P(Layouts, FindConfigTest, ::testing::Values(".", "share/muster"));

}  // namespace
}  // namespace muster
