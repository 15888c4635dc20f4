// What the server reports: events that a launcher reads again, and a launcher that does not read.
#include "ps/reporter.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/base/fd.h"
#include "common/events/event_line.h"
#include "tests/data/temp_dir.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

class ReporterTest : public ::testing::Test {
 protected:
  ReporterTest() {
    std::signal(SIGPIPE, SIG_IGN);
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    read_end_.Reset(ends[0]);
    write_end_.Reset(ends[1]);
    ::fcntl(read_end_.get(), F_SETFL, O_NONBLOCK);
    ::fcntl(write_end_.get(), F_SETPIPE_SZ, 4096);
  }
  // All that is in the pipe.
  std::string Text() {
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = ::read(read_end_.get(), buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<size_t>(n));
    }
    return text;
  }
  static std::vector<events::Event> EventsOf(const std::string& text) {
    std::vector<events::Event> read;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) read.push_back(ParseEventLine(line));
    return read;
  }
  std::vector<events::Event> Events() { return EventsOf(Text()); }

  UniqueFd read_end_, write_end_;
};

// A file of metrics that somebody has changed since the checkpoint of step 30.
class ChangedMetrics : public ReporterTest {
 protected:
  static std::string Line(int64_t step) { return fmt::format("{{\"step\":{}}}\n", step); }
  static std::string Evaluation(int64_t step) {
    return fmt::format("{{\"step\":{},\"test_accuracy\":0.5}}\n", step);
  }
  // What the run had written by then, and what came after it.
  std::string before_ = Line(10) + Line(20) + Evaluation(20) + Line(30);
  const std::string after_ = Evaluation(30) + Line(40) + "{\"step\":5";

  // The file after a run has gone on with `text` in it; `unwritten`: of the checkpoint.
  std::string GoOn(const std::string& text, bool knows_hash = true,
                   const std::string& unwritten = "") {
    WriteBytes(path_, before_);
    checkpoint::Metrics resumed;
    resumed.set_bytes(std::ssize(before_));
    resumed.set_unwritten(unwritten);
    if (knows_hash) resumed.set_xxh3(HashOfStart(path_, resumed.bytes()).value());
    WriteBytes(path_, text);
    Reporter reporter(path_, write_end_.get(), &resumed);
    reporter.CutMetrics({.step = 30, .logs = {10, 20, 30}, .evaluations = {20}});
    reporter.GoOn(30);
    const checkpoint::Metrics now = reporter.KeepMetrics();
    EXPECT_EQ(now.bytes(), std::ssize(testing::ReadBytes(path_)));
    EXPECT_EQ(now.xxh3(), HashOfStart(path_, now.bytes()).value());
    return testing::ReadBytes(path_);
  }
  static void WriteBytes(const std::string& path, const std::string& bytes) {
    testing::WriteBytes(path, bytes);
  }

  const testing::TempDir dir_;
  const std::string path_ = dir_ / "metrics.jsonl", cut_ = dir_ / "metrics-cut.jsonl";
};

TEST_F(ChangedMetrics, AsItWasItIsCutAndNothingIsSaid) {
  for (const bool knows_hash : {true, false}) {  // also with a checkpoint of an earlier version
    EXPECT_EQ(GoOn(before_ + after_, knows_hash), before_);
    EXPECT_EQ(Text(), "");
    EXPECT_FALSE(std::filesystem::exists(cut_));
  }
}

TEST_F(ChangedMetrics, ItIsNeverCutInTheMiddleOfALine) {
  const std::string longer = "{\"hello\":\"world\"}\n" + before_;  // another length, nothing lost
  EXPECT_EQ(GoOn(longer + after_), longer);
  EXPECT_EQ(Text(), "");
  EXPECT_EQ(testing::ReadBytes(cut_), after_);  // it may be somebody's
}

TEST_F(ChangedMetrics, WhatIsMissingIsNamed) {
  EXPECT_EQ(GoOn(Line(20) + after_), Line(20));
  EXPECT_THAT(Text(), HasSubstr("it lacks 2 of 3 lines of steps (10, 30) and 1 of 1 evaluations "
                                "(20)"));
  EXPECT_EQ(GoOn(Line(10) + "{\"step\":\n" + Line(30) + Evaluation(20)),
            Line(10) + "{\"step\":\n" + Line(30) + Evaluation(20));
  EXPECT_THAT(Text(), HasSubstr("it lacks 1 of 3 lines of steps (20); a line cannot be read "
                                "(line 2)"));
  EXPECT_EQ(GoOn(""), "");
  EXPECT_THAT(Text(), HasSubstr("it lacks 3 of 3 lines of steps (10 to 30) and 1 of 1"));
  EXPECT_EQ(GoOn("no newline"), "");
  EXPECT_THAT(Text(), HasSubstr("it lacks 3 of 3 lines"));
}

// The disk had no room when the checkpoint was written, and then it had.
TEST_F(ChangedMetrics, WhatWasWrittenAfterAllIsNotWrittenTwice) {
  before_ = Line(10) + Line(20) + Evaluation(20);
  const std::string late = Line(30), other = "{\"hello\":\"world\"}\n";
  EXPECT_EQ(GoOn(before_ + late + Line(40), true, late), before_ + late);
  EXPECT_EQ(GoOn(other + before_ + late + Line(40), true, late), other + before_ + late);
  EXPECT_EQ(GoOn(other + before_, true, late), other + before_ + late);
  EXPECT_EQ(Text(), "");
}

// What was put aside by an earlier server stays.
TEST_F(ChangedMetrics, WhatIsCutOffIsPutBehindTheRest) {
  const std::string changed = "{\"hello\":\"world\"}\n" + before_;
  for (int i = 0; i < 2; ++i) (void)GoOn(changed + after_);
  EXPECT_EQ(testing::ReadBytes(cut_), after_ + after_);
}

// A disk that takes no more, as the limit of a file's size.
class FullDisk : public ReporterTest {
 protected:
  FullDisk() {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    before_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    reporter_.Metrics(events::Log());
    SetRoom(0);
    reporter_.Metrics(events::Log());
    SetRoom(before_.rlim_cur);
    EXPECT_THAT(reporter_.metrics_trouble(), HasSubstr("metrics.jsonl: cannot be written"));
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
  const testing::TempDir dir_;
  const std::string path_ = dir_ / "metrics.jsonl";
  Reporter reporter_{path_, write_end_.get()};
};

TEST_F(FullDisk, LinesThatHadNoRoomComeWithTheNextOne) {
  EXPECT_EQ(std::ranges::count(testing::ReadBytes(path_), '\n'), 1);
  reporter_.Metrics(events::Log());
  EXPECT_EQ(reporter_.metrics_trouble(), "");
  EXPECT_EQ(std::ranges::count(testing::ReadBytes(path_), '\n'), 3);
}

TEST_F(ReporterTest, EventsAreReadAsTheyWereMeant) {
  Reporter reporter("", write_end_.get());
  reporter.Listening("tcp://127.0.0.1:4242");
  reporter.Joined(1, "rank 1 joined");
  reporter.Waiting({0, 2}, 5.5);
  reporter.Failure({ExitCode::kPeerFailed, 0, "rank 0 was lost"});
  reporter.Failure({.code = ExitCode::kDeadline, .what = "nobody"});
  reporter.Beat();
  const std::vector<events::Event> read = Events();
  ASSERT_EQ(read.size(), 6u);
  EXPECT_EQ(read[0].listening().endpoint(), "tcp://127.0.0.1:4242");
  EXPECT_EQ(read[1].joined().rank(), 1u);
  EXPECT_EQ(read[2].waiting().missing(1), 2u);
  EXPECT_EQ(read[2].waiting().elapsed_s(), 5.5);
  EXPECT_EQ(read[3].failure().exit_code(), 7);
  EXPECT_TRUE(read[3].failure().has_rank());
  EXPECT_FALSE(read[4].failure().has_rank());
  EXPECT_EQ(read[4].failure().what(), "nobody");
  EXPECT_TRUE(read[5].has_beat());
}

// What is of a moment is dropped, whole lines of it; what must arrive is in order and complete.
TEST_F(ReporterTest, ASlowReaderMissesOnlyWhatIsOfAMoment) {
  Reporter reporter("", write_end_.get());
  events::Progress progress;
  for (int64_t step = 0; step < 500; ++step) {
    progress.mutable_at()->set_step(step);
    reporter.Progress(progress);
  }
  const std::string first = Text();
  reporter.Failure({.code = ExitCode::kDeadline, .what = "late"});
  const std::vector<events::Event> read = EventsOf(first + Text());
  ASSERT_GT(read.size(), 2u);
  ASSERT_LT(read.size(), 500u);
  for (size_t i = 0; i + 1 < read.size(); ++i) {
    EXPECT_EQ(read[i].progress().at().step(), static_cast<int64_t>(i));
  }
  EXPECT_EQ(read.back().failure().what(), "late");
}

TEST_F(ReporterTest, WithoutAReaderTheServerGoesOn) {
  Reporter reporter("", write_end_.get());
  read_end_.Reset();
  reporter.Beat();
  reporter.Failure({.code = ExitCode::kDeadline, .what = "late"});
  Reporter nobody("", -1);
  nobody.Beat();
}

TEST_F(ReporterTest, AMetricsFileThatIsRemovedIsWarnedOfOnce) {
  const testing::TempDir dir;
  const std::string path = dir / "metrics.jsonl";
  Reporter reporter(path, write_end_.get());
  events::Log line;
  line.mutable_at()->set_step(3);
  line.set_eta_s(9);  // of a moment: not in the file
  reporter.Metrics(line);
  std::ifstream file(path);
  std::string text;
  std::getline(file, text);
  EXPECT_THAT(text, ::testing::StartsWith("{\"time\":\"2"));
  EXPECT_THAT(text, HasSubstr("Z\",\"elapsed_s\":0.0,\"step\":3,\"samples\":0,\"epoch\":0.0,"
                              "\"learning_rate\":0.0,\"train_loss\":null,\"train_accuracy\":null,"
                              "\"images_per_second\":0.0,"));
  EXPECT_THAT(text, ::testing::EndsWith("\"waiting_share\":0.0,\"skipped_steps\":0}"));
  line.mutable_measured()->set_gpu_memory_mb(1.5);  // of workers on GPUs
  reporter.Metrics(line);
  std::getline(file.seekg(0, std::ios::cur), text);
  EXPECT_THAT(text, ::testing::EndsWith(",\"gpu_memory_mb\":1.5}"));
  std::filesystem::remove_all(dir.path());
  reporter.Metrics(line);
  reporter.Metrics(line);
  const std::vector<events::Event> read = Events();
  ASSERT_EQ(read.size(), 1u);
  EXPECT_THAT(read[0].warning().message(), HasSubstr("metrics.jsonl has been removed"));
}

}  // namespace
}  // namespace muster
