// The instructions of `muster server` for starting workers.
#include "cli/job/workers_by_hand.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "proto/config.pb.h"
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

TEST(ResolveAddress, ChunksAreThoseForSocketsIfOtherHostsMayJoin) {
  const auto chunk = [](const std::string& endpoint, int64_t typed) {
    config::Config config;
    if (typed > 0) config.mutable_cluster()->set_chunk_bytes(typed);
    ResolveAddress({.endpoint = endpoint, .bind = "", .token_file = ""}, config);
    return config.cluster().chunk_bytes();
  };
  EXPECT_EQ(chunk("tcp://127.0.0.1:5555", 0), 0) << "workers of this host share memory";
  EXPECT_EQ(chunk("tcp://192.0.2.1:5555", 0), 1 << 20);
  EXPECT_EQ(chunk("tcp://192.0.2.1:5555", 4096), 4096);
}

}  // namespace
}  // namespace muster
