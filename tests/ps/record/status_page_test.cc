// The status in run.events, as `muster top` reads it.
#include "ps/record/status_page.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "common/events/event_log.h"
#include "tests/data/temp_dir.h"

namespace muster {
namespace {

class StatusPageTest : public ::testing::Test {
 protected:
  static events::Status Status(int64_t step) {
    events::Status status;
    status.mutable_progress()->mutable_at()->set_step(step);
    status.set_waits("for \xff");
    return status;
  }
  int64_t Step() const { return ReadStatusPage(path_).value().progress().at().step(); }

  const testing::TempDir dir_;
  const std::string path_ = dir_ / kEventLog;
};

TEST_F(StatusPageTest, TheNewestCounts) {
  EXPECT_FALSE(ReadStatusPage(path_));
  testing::WriteBytes(path_, "");
  {
    StatusPage page(path_);
    EXPECT_FALSE(ReadStatusPage(path_));
    for (const int64_t step : {7, 8, 9}) {
      page.Write(Status(step));
      EXPECT_EQ(Step(), step);
    }
  }
  StatusPage(path_).Write(Status(5));  // of a run that is resumed
  EXPECT_EQ(Step(), 5);
  const events::Status status = ReadStatusPage(path_).value();
  EXPECT_EQ(status.server().pid(), ::getpid());
  EXPECT_GT(status.server().bytes(), 100000);
  EXPECT_EQ(status.waits(), "for \ufffd");
  EXPECT_LE(std::filesystem::file_size(path_), kFirstRecord);
}

TEST_F(StatusPageTest, OfATornOneTheOneBeforeCounts) {
  testing::WriteBytes(path_, "");
  StatusPage page(path_);
  for (const int64_t step : {7, 8}) page.Write(Status(step));
  const std::string whole = testing::ReadBytes(path_);
  for (size_t at = 0; at < 40; ++at) {
    std::string torn = whole;
    torn[at] = static_cast<char>(~torn[at]);
    testing::WriteBytes(path_, torn);
    EXPECT_EQ(Step(), 7) << at;
  }
}

}  // namespace
}  // namespace muster
