// run.events and metrics.jsonl: what a resumed run undoes, files that were changed or cut off, and
// what the disk refuses.
#include "ps/record/run_log.h"

#include <fmt/core.h>
#include <gmock/gmock-matchers.h>
#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "common/events/event_log.h"
#include "common/events/metrics_line.h"
#include "tests/data/temp_dir.h"
#include "tests/protocol/scripted_clock.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ReadBytes;
using testing::WriteBytes;

events::Event Interval(int64_t step) {
  events::Event event;
  event.mutable_log()->mutable_at()->set_step(step);
  return event;
}

events::Event Loss() {
  events::Event event;
  event.mutable_member_change()->set_kind(events::MemberChange::LOST);
  return event;
}

std::string Text(const std::vector<events::Event>& events) {
  std::string text;
  for (const events::Event& event : events) text += MetricsText(event);
  return text;
}

class RunLogTest : public ::testing::Test {
 protected:
  RunLog Open(const RunLog::Kept* kept = nullptr) {
    checkpoint::State state;
    if (kept != nullptr) *state.mutable_metrics() = kept->metrics;
    if (kept != nullptr && kept->events.has_xxh3()) *state.mutable_events() = kept->events;
    warnings_.clear();
    return {dir_.string(), kept != nullptr ? &state : nullptr,
            [this](const std::string& message) { warnings_.push_back(message); }};
  }
  // A run that is killed at step 20, with a checkpoint of step 10.
  RunLog::Kept Run() {
    RunLog log = Open();
    log.Begin(0, [](const events::Event&) {});
    log.Append(Interval(10));
    RunLog::Kept kept = log.Keep();
    for (const events::Event& event : {Loss(), Interval(20)}) log.Append(event);
    events::Event summary;
    summary.mutable_summary()->mutable_at()->set_step(20);
    log.Append(summary);
    return kept;
  }
  // Resumes the run at step 10 and returns metrics.jsonl, which must be that of run.events.
  std::string GoOn(const RunLog::Kept& kept, const std::vector<events::Event>& more = {}) {
    RunLog log = Open(&kept);
    log.Begin(10, [](const events::Event&) {});
    log.Flush();
    for (const events::Event& event : more) log.Append(event);
    EXPECT_EQ(log.trouble(), "");
    kept_ = log.Keep();
    const std::string text = ReadBytes(metrics_);
    EXPECT_EQ(kept_.metrics.xxh3(), HashOf(text));
    std::string logged;
    std::ifstream file(events_);
    EXPECT_TRUE(ForEachStanding(file, kFirstRecord, [&](const events::Event& event, int64_t) {
      logged += MetricsText(event);
    }));
    EXPECT_EQ(logged, text);
    return text;
  }

  const testing::TempDir dir_;
  const std::string events_ = dir_ / kEventLog, metrics_ = dir_ / "metrics.jsonl",
                    cut_ = dir_ / "metrics-cut.jsonl";
  std::vector<std::string> warnings_;
  RunLog::Kept kept_;
};

TEST_F(RunLogTest, StepsAreUndoneButOtherEventsStay) {
  const RunLog::Kept kept = Run();
  EXPECT_EQ(GoOn(kept), Text({Interval(10), Loss()}));  // this server is killed, too
  EXPECT_EQ(GoOn(kept, {Interval(20)}), Text({Interval(10), Loss(), Interval(20)}));
  EXPECT_EQ(GoOn(kept_), Text({Interval(10), Loss(), Interval(20)}));
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(cut_));
}

TEST_F(RunLogTest, AServerMayBeKilledAtAnyByte) {
  const RunLog::Kept kept = Run();
  const std::string events = ReadBytes(events_), metrics = ReadBytes(metrics_);
  const std::string ten = Text({Interval(10)});
  const auto there = static_cast<size_t>(kept.events.bytes()) + kFirstRecord;
  for (size_t bytes = there; bytes < events.size(); ++bytes) {
    WriteBytes(events_, events.substr(0, bytes));
    WriteBytes(metrics_, metrics);
    const bool lost = bytes >= there + LogRecord(Loss()).size();
    ASSERT_EQ(GoOn(kept), lost ? ten + Text({Loss()}) : ten) << bytes;
    ASSERT_THAT(warnings_, IsEmpty());
  }
}

// The disk was full when the checkpoint was written, and took some of the rest later.
TEST_F(RunLogTest, WhatWasWrittenAfterAllIsNotWrittenTwice) {
  RunLog::Kept kept = Run();
  const std::string record = LogRecord(Loss());
  kept.metrics.set_unwritten(Text({Loss()}));
  const std::string events = ReadBytes(events_), metrics = ReadBytes(metrics_);
  const auto there = static_cast<size_t>(kept.events.bytes());
  for (size_t taken = 0; taken <= record.size(); ++taken) {  // at first, a part of the record
    kept.events.set_bytes(static_cast<int64_t>(there + taken));
    kept.events.set_xxh3(HashOf(events.substr(kFirstRecord, there + taken)));
    kept.events.set_unwritten(record.substr(taken));
    for (size_t bytes = there + taken; bytes <= there + record.size(); ++bytes) {
      WriteBytes(events_, events.substr(0, kFirstRecord + bytes));
      WriteBytes(metrics_, metrics);
      ASSERT_EQ(GoOn(kept), Text({Interval(10), Loss()})) << taken << " " << bytes;
    }
  }
}

TEST_F(RunLogTest, LinesThatSomebodyChangedComeBack) {
  const RunLog::Kept kept = Run();
  // After a loss of power the end may be missing.
  for (const std::string& lines : {std::string(), Text({Interval(10)}).substr(0, 9)}) {
    WriteBytes(metrics_, lines);
    EXPECT_EQ(GoOn(kept), Text({Interval(10), Loss()}));
    EXPECT_THAT(warnings_, IsEmpty());
  }
  WriteBytes(metrics_, "no newline" + ReadBytes(metrics_));
  EXPECT_EQ(GoOn(kept), Text({Interval(10), Loss()}));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("the file was changed")));
  EXPECT_THAT(ReadBytes(cut_), HasSubstr("no newline"));  // a user may need it
  std::filesystem::remove(metrics_);
  EXPECT_EQ(GoOn(kept), Text({Interval(10), Loss()}));
  EXPECT_EQ(GoOn(kept), Text({Interval(10), Loss()}));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(RunLogTest, ADamagedLogBeginsAgainWithTheLines) {
  for (const bool removed : {false, true}) {
    const RunLog::Kept kept = Run();
    std::string events = ReadBytes(events_);
    events[kFirstRecord + 20] ^= 1;
    WriteBytes(events_, events);
    if (removed) std::filesystem::remove(events_);
    EXPECT_EQ(GoOn(kept), Text({Interval(10), Loss()}));
    EXPECT_EQ(warnings_.size(), removed ? 0u : 1u);
    if (!removed) {
      EXPECT_EQ(ReadBytes(events_ + ".damaged"), events);
    }
    EXPECT_EQ(GoOn(kept_, {Interval(20)}), Text({Interval(10), Loss(), Interval(20)}));
    std::filesystem::remove(metrics_);
  }
}

// An earlier version knew neither the log nor, at first, a hash.
TEST_F(RunLogTest, ARunOfAnEarlierVersionBeginsALogWithItsLines) {
  const std::string ten = "{\"step\":10}\n", lost = "{\"event\":\"worker_lost\",\"step\":12}\n",
                    rest = "{\"step\":20}\n" + lost + "{\"final\":true}\n{\"step\":3";
  for (const bool knows_hash : {false, true}) {
    RunLog::Kept kept;
    kept.metrics.set_bytes(std::ssize(ten));
    if (knows_hash) kept.metrics.set_xxh3(HashOf(ten));
    WriteBytes(metrics_, ten + rest);
    EXPECT_EQ(GoOn(kept), ten + lost);
    kept.metrics.set_unwritten(lost);  // it was written after all
    WriteBytes(metrics_, ten + rest);
    EXPECT_EQ(GoOn(kept), ten + lost);
    EXPECT_EQ(GoOn(kept_), ten + lost);
    std::filesystem::remove(events_);
  }
  EXPECT_THAT(ReadBytes(cut_), EndsWith("{\"step\":3"));
}

// A file size limit simulates a full disk.
class FullDisk : public RunLogTest {
 protected:
  FullDisk() {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    before_handler_ = std::signal(SIGXFSZ, SIG_IGN);
  }
  ~FullDisk() override {
    SetRoom(before_.rlim_cur);
    std::signal(SIGXFSZ, before_handler_);
  }
  void SetRoom(rlim_t bytes) const {
    const rlimit limit{bytes, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  GrowingFile OpenLines() {
    return {metrics_, 0, 0, [this](const std::string& said) { warnings_.push_back(said); }};
  }

  rlimit before_{};
  void (*before_handler_)(int) = nullptr;
};

TEST_F(FullDisk, WhatHadNoRoomComesWithTheNext) {
  GrowingFile file = OpenLines();
  file.Append("1\n");
  SetRoom(3);  // half of the next line
  file.Append("23\n");
  file.Append("4\n");
  EXPECT_THAT(file.trouble(), HasSubstr("metrics.jsonl: cannot be written"));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("The run continues; retrying later")));
  EXPECT_EQ(file.Keep().bytes(), 3);
  EXPECT_EQ(file.Keep().unwritten(), "3\n4\n");
  EXPECT_EQ(file.Keep().xxh3(), HashOf("1\n2"));
  SetRoom(before_.rlim_cur);
  file.Append("5\n");
  EXPECT_EQ(file.trouble(), "");
  EXPECT_EQ(ReadBytes(metrics_), "1\n23\n4\n5\n");
  EXPECT_EQ(file.Keep().xxh3(), HashOf(ReadBytes(metrics_)));
}

TEST_F(FullDisk, WhatHadNoRoomComesAfterTenSeconds) {
  testing::ScriptedClock clock;
  GrowingFile file = OpenLines();
  SetRoom(0);
  file.Append("1\n");
  SetRoom(before_.rlim_cur);
  file.TryAgain();
  EXPECT_EQ(ReadBytes(metrics_), "");
  clock.Advance(Retry::kInterval);
  file.TryAgain();
  EXPECT_EQ(ReadBytes(metrics_), "1\n");
}

TEST_F(FullDisk, ARunResumesWithoutRoom) {
  const RunLog::Kept kept = Run();
  {
    RunLog log = Open(&kept);
    SetRoom(0);
    log.Begin(10, [](const events::Event&) {});
    log.Append(Interval(20));
    EXPECT_NE(log.trouble(), "");
    kept_ = log.Keep();
  }
  SetRoom(before_.rlim_cur);
  EXPECT_EQ(GoOn(kept_), Text({Interval(10), Loss(), Interval(20)}));
}

}  // namespace
}  // namespace muster
