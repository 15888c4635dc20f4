// metrics.jsonl: where a resumed run cuts it, and lines that the disk refuses.
#include "ps/record/metrics_file.h"

#include <fmt/core.h>
#include <gmock/gmock-matchers.h>
#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "tests/data/temp_dir.h"
#include "tests/protocol/scripted_clock.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ReadBytes;
using testing::WriteBytes;

class MetricsFileTest : public ::testing::Test {
 protected:
  MetricsFile Open(const checkpoint::GrownFile* resumed = nullptr) {
    return {path_, resumed, [this](const std::string& message) { warnings_.push_back(message); }};
  }

  const testing::TempDir dir_;
  const std::string path_ = dir_ / "metrics.jsonl", cut_ = dir_ / "metrics-cut.jsonl";
  std::vector<std::string> warnings_;
};

// A server that resumes the run is killed after it has cut the file and before it writes again.
TEST_F(MetricsFileTest, NoEventIsLostIfTheServerIsKilledAfterTheCut) {
  const std::string before = "{\"step\":10}\n", lost = "{\"event\":\"worker_lost\"}\n",
                    restarted = "{\"event\":\"server_restarted\",\"from_step\":10}\n";
  const std::filesystem::path events = dir_ / "metrics-events.jsonl";
  checkpoint::GrownFile resumed;
  resumed.set_bytes(std::ssize(before));
  resumed.set_xxh3(HashOf(before));
  const DueLines due{.step = 10, .logs = {10}};
  WriteBytes(path_, before + lost + "{\"step\":20}\n" + restarted);
  for (int i = 0; i < 2; ++i) {
    MetricsFile killed = Open(&resumed);
    const MetricsFile::Kept kept = killed.Cut(due);
    EXPECT_EQ(kept.restarts.size(), 1u);
    EXPECT_EQ(kept.lines, before + lost + restarted);
    EXPECT_EQ(ReadBytes(path_), before);
  }
  const std::string aside = ReadBytes(events);
  {
    MetricsFile file = Open(&resumed);
    (void)file.Cut(due);
    file.Append("{\"step\":20}\n");
    EXPECT_EQ(ReadBytes(path_), before + lost + restarted + "{\"step\":20}\n");
    EXPECT_FALSE(std::filesystem::exists(events));
    resumed = file.Keep();
  }
  WriteBytes(events, aside);  // the server was killed before it removed the file
  MetricsFile file = Open(&resumed);
  EXPECT_EQ(file.Cut({.step = 20, .logs = {10, 20}}).restarts.size(), 1u);
  file.Append("");
  EXPECT_EQ(ReadBytes(path_), before + lost + restarted + "{\"step\":20}\n");
  EXPECT_FALSE(std::filesystem::exists(events));
}

// The file was changed by someone after the checkpoint of step 30.
class ChangedMetrics : public MetricsFileTest {
 protected:
  static std::string Line(int64_t step) { return fmt::format("{{\"step\":{}}}\n", step); }
  static std::string Evaluation(int64_t step) {
    return fmt::format("{{\"step\":{},\"test_accuracy\":0.5}}\n", step);
  }
  // The run's lines before and after the checkpoint.
  std::string before_ = Line(10) + Line(20) + Evaluation(20) + Line(30);
  const std::string after_ = Evaluation(30) + Line(40) + "{\"step\":5";

  // Resumes the run with `text` as the file and returns the result. `unwritten`: lines in the
  // checkpoint that were not written.
  std::string GoOn(const std::string& text, bool knows_hash = true,
                   const std::string& unwritten = "") {
    warnings_.clear();
    WriteBytes(path_, before_);
    checkpoint::GrownFile resumed;
    resumed.set_bytes(std::ssize(before_));
    resumed.set_unwritten(unwritten);
    if (knows_hash) resumed.set_xxh3(HashOf(before_));
    WriteBytes(path_, text);
    MetricsFile file = Open(&resumed);
    (void)file.Cut({.step = 30, .logs = {10, 20, 30}, .evaluations = {20}});
    file.Append("");
    const checkpoint::GrownFile now = file.Keep();
    EXPECT_EQ(now.bytes(), std::ssize(ReadBytes(path_)));
    EXPECT_EQ(now.xxh3(), HashOf(ReadBytes(path_)));
    return ReadBytes(path_);
  }
};

TEST_F(ChangedMetrics, AsItWasItIsCutAndNothingIsSaid) {
  for (const bool knows_hash : {true, false}) {  // also with a checkpoint of an earlier version
    EXPECT_EQ(GoOn(before_ + after_, knows_hash), before_);
    EXPECT_THAT(warnings_, IsEmpty());
    EXPECT_FALSE(std::filesystem::exists(cut_));
  }
}

TEST_F(ChangedMetrics, ItIsNeverCutInTheMiddleOfALine) {
  const std::string longer = "{\"hello\":\"world\"}\n" + before_;  // another length, nothing lost
  EXPECT_EQ(GoOn(longer + after_), longer);
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_EQ(ReadBytes(cut_), after_);  // a user may need it
}

TEST_F(ChangedMetrics, WhatIsMissingIsNamed) {
  EXPECT_EQ(GoOn(Line(20) + after_), Line(20));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("missing: 2 of 3 lines of steps (10, 30) and 1 of 1 "
                                               "evaluations (20)")));
  EXPECT_EQ(GoOn(Line(10) + "{\"step\":\n" + Line(30) + Evaluation(20)),
            Line(10) + "{\"step\":\n" + Line(30) + Evaluation(20));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("missing: 1 of 3 lines of steps (20); a line is "
                                               "unreadable (line 2)")));
  EXPECT_EQ(GoOn(""), "");
  EXPECT_THAT(warnings_,
              ElementsAre(HasSubstr("missing: 3 of 3 lines of steps (10 to 30) and 1 of 1")));
  EXPECT_EQ(GoOn("no newline"), "");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("missing: 3 of 3 lines")));
}

// The disk was full when the checkpoint was written, but not later.
TEST_F(ChangedMetrics, WhatWasWrittenAfterAllIsNotWrittenTwice) {
  before_ = Line(10) + Line(20) + Evaluation(20);
  const std::string late = Line(30), other = "{\"hello\":\"world\"}\n";
  EXPECT_EQ(GoOn(before_ + late + Line(40), true, late), before_ + late);
  EXPECT_EQ(GoOn(other + before_ + late + Line(40), true, late), other + before_ + late);
  EXPECT_EQ(GoOn(other + before_, true, late), other + before_ + late);
  EXPECT_THAT(warnings_, IsEmpty());
}

// Lines that an earlier server cut off are kept.
TEST_F(ChangedMetrics, WhatIsCutOffIsPutBehindTheRest) {
  const std::string changed = "{\"hello\":\"world\"}\n" + before_;
  for (int i = 0; i < 2; ++i) (void)GoOn(changed + after_);
  EXPECT_EQ(ReadBytes(cut_), after_ + after_);
}

// A file size limit simulates a full disk.
class FullDisk : public MetricsFileTest {
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

  rlimit before_{};
  void (*before_handler_)(int) = nullptr;
};

TEST_F(FullDisk, LinesThatHadNoRoomComeWithTheNextOne) {
  MetricsFile file = Open();
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
  EXPECT_EQ(ReadBytes(path_), "1\n23\n4\n5\n");
  EXPECT_EQ(file.Keep().xxh3(), HashOf(ReadBytes(path_)));
}

// The events have no second file, but the run goes on.
TEST_F(FullDisk, EventsHaveNoRoomWhenTheRunIsResumed) {
  const std::string event = "{\"event\":\"worker_lost\"}\n";
  WriteBytes(path_, event);
  checkpoint::GrownFile resumed;
  resumed.set_xxh3(HashOf(""));
  MetricsFile file = Open(&resumed);
  SetRoom(0);
  EXPECT_EQ(file.Cut({}).lines, event);
  SetRoom(before_.rlim_cur);
  file.Append("");
  EXPECT_EQ(ReadBytes(path_), event);
}

TEST_F(FullDisk, LinesThatHadNoRoomComeAfterTenSeconds) {
  testing::ScriptedClock clock;
  MetricsFile file = Open();
  SetRoom(0);
  file.Append("1\n");
  SetRoom(before_.rlim_cur);
  file.TryAgain();
  EXPECT_EQ(ReadBytes(path_), "");
  clock.Advance(Retry::kInterval);
  file.TryAgain();
  EXPECT_EQ(ReadBytes(path_), "1\n");
}

}  // namespace
}  // namespace muster
