// The instructions of `muster server` for starting workers.
#include "cli/job/workers_by_hand.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/data/temp_dir.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

TEST(HandTextTest, TheWorkersCommandWorksInAnyFolder) {
  const testing::TempDir temp;
  const fs::path before = fs::current_path();
  fs::current_path(temp.path());
  {
    const RunDir dir = RunDir::Make("my run", "smoke.txtpb");
    const std::vector<std::string> lines =
        HandLines({"local://@x", "local://@x"}, "local://@x", false, 2, dir, "secrets/token");
    const std::string here = fs::current_path();
    EXPECT_THAT(lines, ::testing::Contains("  muster worker '" + here +
                                           "/my run/config.txtpb' --rank 0 --endpoint local://@x "
                                           "--token-file " +
                                           here + "/secrets/token"));
  }
  fs::current_path(before);
}

}  // namespace
}  // namespace muster
