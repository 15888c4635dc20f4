// Whether the server of a run that is resumed was lost, by what it wrote last.
#include "cli/job/lost_before.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "tests/data/temp_dir.h"

namespace muster {
namespace {

class LostBeforeTest : public ::testing::Test {
 protected:
  std::optional<ServerLoss> With(const std::string& status) {
    std::ofstream(dir_.path() / "status.json") << status;
    return LostBefore(dir_.path());
  }
  testing::TempDir dir_;
};

constexpr const char* kGone = R"("server": {"host": "elsewhere", "pid": 1}, "unix_time": 1000.0)";

TEST_F(LostBeforeTest, OneThatIsGoneAndSaidNothingOfAnEnd) {
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  const auto loss = With(std::string("{") + kGone + R"(, "state": "training", "step": 12})");
  ASSERT_TRUE(loss.has_value());
  EXPECT_EQ(loss->step, 12);
  EXPECT_EQ(loss->cause, "ended without a word");
  EXPECT_LT(loss->at, now.count());
  const auto early = With(std::string("{") + kGone + R"(, "state": "gathering"})");
  ASSERT_TRUE(early.has_value());
  EXPECT_EQ(early->step, std::nullopt);
}

TEST_F(LostBeforeTest, NotOneThatSaidSoOrIsThere) {
  EXPECT_EQ(LostBefore(dir_.path()), std::nullopt);
  for (const char* const end : {"completed", "failed", "interrupted"}) {
    EXPECT_EQ(With(std::string("{") + kGone + R"(, "state": ")" + end + "\"}"), std::nullopt);
  }
  EXPECT_EQ(With(R"({"server": {"host": "elsewhere"}, "unix_time": 1e12, "state": "training"})"),
            std::nullopt);
  for (const char* const nonsense : {"", "[]", "{}", R"({"server": {}, "state": 5})"}) {
    EXPECT_EQ(With(nonsense), std::nullopt) << nonsense;
  }
}

}  // namespace
}  // namespace muster
