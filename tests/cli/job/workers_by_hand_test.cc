// What `muster server` says of how to start workers.
#include "cli/job/workers_by_hand.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

namespace muster {
namespace {

namespace fs = std::filesystem;

TEST(HandTextTest, TheWorkersCommandWorksInAnyFolder) {
  std::string pattern = fs::temp_directory_path() / "muster-hand-text-XXXXXX";
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  const fs::path before = fs::current_path();
  fs::current_path(pattern);
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
  fs::remove_all(pattern);
}

}  // namespace
}  // namespace muster
