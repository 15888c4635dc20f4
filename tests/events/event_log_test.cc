// What readers make of a run.events that is cut off, damaged, or of a run that was resumed.
#include "common/events/event_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string Interval(int64_t step) {
  events::Event event;
  event.mutable_log()->mutable_at()->set_step(step);
  return LogRecord(event);
}

std::string Begun(const std::string& before) {
  events::Event event;
  event.mutable_begun()->set_position(std::ssize(before));
  return LogRecord(event);
}

std::string Summary() {
  events::Event event;
  event.mutable_summary();
  return LogRecord(event);
}

std::string Warning() {
  events::Event event;
  event.mutable_warning()->set_message("\xff");
  return LogRecord(event);
}

// The intervals that stand, -1 for a summary, -2 for a warning; empty without a `begun`.
std::vector<int64_t> Standing(const std::string& records) {
  std::vector<int64_t> steps;
  std::istringstream log("first" + records);
  const bool begun = ForEachStanding(log, 5, [&](const events::Event& event, int64_t) {
    if (event.has_log()) steps.push_back(event.log().at().step());
    if (event.has_summary()) steps.push_back(-1);
    if (event.has_warning()) steps.push_back(-2);
  });
  EXPECT_TRUE(begun || steps.empty());
  return steps;
}

TEST(EventLogTest, AServerThatResumesUndoesStepsButNothingElse) {
  const std::string kept = Begun("") + Interval(10), lost = kept + Interval(20) + Warning();
  EXPECT_THAT(Standing(lost), ElementsAre(10, 20, -2));
  const std::string again = lost + Begun(kept) + Interval(20) + Summary();
  EXPECT_THAT(Standing(again), ElementsAre(10, -2, 20, -1));
  EXPECT_THAT(Standing(again + Begun(kept) + Interval(20)), ElementsAre(10, -2, 20));
  EXPECT_THAT(Standing(again + Begun(again) + Interval(30)), ElementsAre(10, -2, 20, -1, 30));
  EXPECT_THAT(Standing(Interval(10)), IsEmpty());
}

TEST(EventLogTest, EveryPrefixIsReadable) {
  const std::vector<int64_t> all{1, -2, 2};
  std::string log = Begun("");
  for (size_t bytes = 0; bytes < log.size(); ++bytes) {
    EXPECT_THAT(Standing(log.substr(0, bytes)), IsEmpty());
  }
  std::vector<int64_t> seen;
  for (const std::string& record : {Interval(1), Warning(), Interval(2)}) {
    for (size_t bytes = 0; bytes < record.size(); ++bytes) {
      EXPECT_EQ(Standing(log + record.substr(0, bytes)), seen);
    }
    log += record;
    seen.push_back(all[seen.size()]);
    EXPECT_EQ(Standing(log), seen);
  }
}

TEST(EventLogTest, OfADamagedLogTheRestCounts) {
  const std::string begun = Begun(""), log = begun + Interval(1) + Interval(2) + Interval(3);
  for (size_t at = begun.size(); at < log.size(); ++at) {
    std::string damaged = log;
    damaged[at] = static_cast<char>(~damaged[at]);
    const std::vector<int64_t> steps = Standing(damaged);
    EXPECT_LT(steps.size(), 3u) << at;
    EXPECT_TRUE(std::ranges::is_sorted(steps)) << at;
  }
}

TEST(EventLogTest, NumbersThatAreNotFiniteStay) {
  events::Event event;
  event.mutable_log()->set_learning_rate(NAN);
  std::istringstream log(Begun("") + LogRecord(event));
  EXPECT_TRUE(ForEachStanding(log, 0, [](const events::Event& read, int64_t) {
    EXPECT_TRUE(!read.has_log() || std::isnan(read.log().learning_rate()));
  }));
}

}  // namespace
}  // namespace muster
