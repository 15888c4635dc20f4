// The server's records: events for a launcher, lines of metrics.jsonl on a slow or full disk, and
// the final state of a run.
#include "ps/record/recorder.h"

#include <gmock/gmock-matchers.h>
#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "common/events/event_log.h"
#include "ps/record/event_pipe.h"
#include "tests/data/temp_dir.h"
#include "tests/model/small_graph.h"
#include "tests/protocol/scripted_clock.h"
#include "tests/ps/record/sent_events.h"

namespace muster::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// Writes to this descriptor block until the lock is free.
std::atomic<int> slow_fd = -1;
std::mutex slow_disk;

class RecorderTest : public ::testing::Test {
 protected:
  RecorderTest() {
    config_.mutable_tensorboard()->set_enabled(false);
    config_.mutable_run()->set_dir(dir_.string());
  }
  ~RecorderTest() override { slow_fd = -1; }

  void Make(const checkpoint::State* resumed = nullptr, std::vector<LostServer> losses = {}) {
    recorder_ = std::make_unique<Recorder>(config_, graph_, sent_.fd(), resumed, std::move(losses));
  }
  void Log(int64_t step) {
    events::Event event;
    event.mutable_log()->mutable_at()->set_step(step);
    recorder_->Record(event);
  }
  void Beat() {
    events::Event event;
    event.mutable_beat();
    recorder_->Record(event);
  }
  // The thread's warnings appear with the next event.
  std::vector<std::string> Warnings() {
    recorder_->Keep().wait();
    Beat();
    std::vector<std::string> warnings;
    for (const events::Event& event : sent_.Events()) {
      if (event.has_warning()) warnings.push_back(event.warning().message());
    }
    return warnings;
  }
  std::string Bytes() {
    recorder_->Keep().wait();
    return ReadBytes(path_);
  }
  // The step of each line, or -1 without one.
  std::vector<int64_t> Steps() {
    std::vector<int64_t> steps;
    std::istringstream lines(Bytes());
    for (std::string line; std::getline(lines, line);) {
      steps.push_back(nlohmann::json::parse(line).value("step", -1));
    }
    return steps;
  }

  const TempDir dir_;
  const std::string path_ = dir_ / "metrics.jsonl";
  config::Config config_;
  const Graph graph_ = SmallGraph(R"(layer { name: "fc" dense { units: 5 } })", {2, 2, 1});
  const SentEvents sent_;
  std::unique_ptr<Recorder> recorder_;
};

TEST_F(RecorderTest, EventsAreReadAsTheyWereMeant) {
  Make();
  recorder_->Record(WaitingEvent({0, 2}, 5.5));
  recorder_->Record(FailureEvent({ExitCode::kPeerFailed, 0, "rank 0 was lost"}));
  recorder_->Record(FailureEvent({.code = ExitCode::kDeadline, .what = "nobody"}));
  const std::vector<events::Event> read = sent_.Events();
  ASSERT_EQ(read.size(), 3u);
  EXPECT_EQ(read[0].waiting().missing(1), 2u);
  EXPECT_EQ(read[0].waiting().elapsed_s(), 5.5);
  EXPECT_EQ(read[1].failure().exit_code(), 7);
  EXPECT_TRUE(read[1].failure().has_rank());
  EXPECT_FALSE(read[2].failure().has_rank());
  EXPECT_EQ(read[2].failure().what(), "nobody");
}

// Transient lines are dropped as a whole. All others arrive in order and complete.
TEST_F(RecorderTest, ASlowReaderMissesOnlyWhatIsOfAMoment) {
  Make();
  events::Event progress;
  for (int64_t step = 0; step < 500; ++step) {
    progress.mutable_progress()->mutable_at()->set_step(step);
    recorder_->Record(progress);
  }
  const std::string first = sent_.Text();
  recorder_->Record(FailureEvent({.code = ExitCode::kDeadline, .what = "late"}));
  const std::vector<events::Event> read = SentEvents::EventsOf(first + sent_.Text());
  ASSERT_GT(read.size(), 2u);
  ASSERT_LT(read.size(), 500u);
  for (size_t i = 0; i + 1 < read.size(); ++i) {
    EXPECT_EQ(read[i].progress().at().step(), static_cast<int64_t>(i));
  }
  EXPECT_EQ(read.back().failure().what(), "late");
}

TEST_F(RecorderTest, WithoutAReaderOrARunDirectoryTheServerGoesOn) {
  SentEvents gone;
  gone.StopReading();
  config_.mutable_run()->clear_dir();
  for (const int fd : {gone.fd(), -1}) {
    recorder_ = std::make_unique<Recorder>(config_, graph_, fd);
    EXPECT_FALSE(recorder_->wants_status());
    recorder_->Begin(0);
    Log(1);
    recorder_->WriteFile("table", "text");
    EXPECT_EQ(recorder_->Finish({}, {}).trouble(), "");
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

TEST_F(RecorderTest, LinesWaitForTheBeginOfTheRun) {
  Make();
  events::Event change;
  change.mutable_member_change()->set_kind(events::MemberChange::LOST);
  recorder_->Record(change);
  EXPECT_EQ(Bytes(), "");
  recorder_->Begin(0);
  for (int64_t step = 1; step <= 100; ++step) Log(step);
  const std::vector<int64_t> steps = Steps();
  ASSERT_EQ(steps.size(), 101u);
  for (int64_t step = 0; step <= 100; ++step) EXPECT_EQ(steps[static_cast<size_t>(step)], step);
}

TEST_F(RecorderTest, ALineSaysWhatItsReadersKnowAndARemovedFileIsWarnedOfOnce) {
  Make();
  recorder_->Begin(0);
  events::Event event;
  events::Log& line = *event.mutable_log();
  line.mutable_at()->set_step(3);
  line.set_eta_s(9);  // transient, so not in the file
  recorder_->Record(event);
  line.mutable_measured()->set_gpu_memory_mb(1.5);  // of workers on GPUs
  recorder_->Record(event);
  std::istringstream file(Bytes());
  std::string text;
  std::getline(file, text);
  EXPECT_THAT(text, StartsWith("{\"time\":\"2"));
  EXPECT_THAT(text, HasSubstr("Z\",\"elapsed_s\":0.0,\"step\":3,\"samples\":0,\"epoch\":0.0,"
                              "\"learning_rate\":0.0,\"train_loss\":null,\"train_accuracy\":null,"
                              "\"images_per_second\":0.0,"));
  EXPECT_THAT(text, ::testing::EndsWith("\"waiting_share\":0.0,\"skipped_steps\":0}"));
  std::getline(file, text);
  EXPECT_THAT(text, ::testing::EndsWith(",\"gpu_memory_mb\":1.5}"));
  std::filesystem::remove(path_);
  for (int i = 0; i < 2; ++i) recorder_->Record(event);
  EXPECT_THAT(Warnings(), ElementsAre(HasSubstr("metrics.jsonl was removed")));
}

// The disk blocks for a while, but heartbeats and everything else continue.
TEST_F(RecorderTest, ASlowDiskHoldsNothingUp) {
  Make();
  recorder_->Begin(0);
  Log(1);
  const int64_t one = std::ssize(Bytes());
  (void)sent_.Text();
  std::unique_lock slow(slow_disk);
  slow_fd = recorder_->log_fd();
  Log(2);
  Log(3);
  const auto kept = recorder_->Keep();
  Log(4);
  recorder_->Status({});
  Beat();
  const std::vector<events::Event> sent = sent_.Events();
  ASSERT_EQ(sent.size(), 4u);
  EXPECT_EQ(sent[2].log().at().step(), 4);
  EXPECT_TRUE(sent[3].has_beat());
  EXPECT_EQ(std::ssize(ReadBytes(path_)), one);
  EXPECT_EQ(kept.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  slow.unlock();
  // The checkpoint includes the lines that were being written, but not the later one.
  EXPECT_THAT(Steps(), ElementsAre(1, 2, 3, 4));
  const checkpoint::GrownFile metrics = kept.get().metrics;
  EXPECT_EQ(metrics.bytes(), 3 * one);
  EXPECT_EQ(metrics.unwritten(), "");
  EXPECT_EQ(metrics.xxh3(), HashOf(ReadBytes(path_).substr(0, static_cast<size_t>(3 * one))));
}

// A file size limit simulates a full disk.
TEST_F(RecorderTest, AFullDiskIsWarnedOfAndGetsItsLinesLater) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  Make();
  recorder_->Begin(0);
  Log(1);
  const int64_t one = std::ssize(Bytes());
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  Log(2);
  Log(3);
  const checkpoint::GrownFile kept = recorder_->Keep().get().metrics;
  EXPECT_EQ(kept.bytes(), one);
  EXPECT_EQ(std::ranges::count(kept.unwritten(), '\n'), 2);
  EXPECT_THAT(Warnings(), ElementsAre(HasSubstr("run.events: cannot be written"),
                                      HasSubstr("metrics.jsonl: cannot be written")));
  recorder_->WriteFile("table", "text");
  EXPECT_THAT(Warnings(), ElementsAre(HasSubstr("table: cannot be written")));
  events::Summary summary;
  summary.set_trouble("no checkpoint");
  EXPECT_THAT(
      recorder_->Finish(summary, {}).trouble(),
      ::testing::AllOf(StartsWith("no checkpoint; "), HasSubstr("run.events: cannot be"),
                       HasSubstr("metrics.jsonl: cannot be"), HasSubstr("table: cannot be")));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(recorder_->Finish({}, {}).trouble(), "");
  EXPECT_THAT(Steps(), ElementsAre(1, 2, 3, 0, 0));  // the zeros are two summaries
  EXPECT_EQ(ReadBytes(dir_ / "table"), "text");
}

TEST_F(RecorderTest, WhatTheDiskDidNotTakeIsTriedAgainWithTheStatus) {
  Make();
  recorder_->Begin(0);
  std::filesystem::create_directory(dir_ / "table");  // blocks the file
  recorder_->WriteFile("table", "text");
  ASSERT_THAT(Warnings(), ElementsAre(HasSubstr("retrying later")));
  std::filesystem::remove(dir_ / "table");
  const auto is_there = [&] {
    recorder_->Status({});
    recorder_->Keep().wait();
    return std::filesystem::exists(dir_ / "table");
  };
  EXPECT_FALSE(is_there());
  AdvanceRealTime(Retry::kInterval);
  EXPECT_TRUE(is_there());
  EXPECT_EQ(recorder_->Finish({}, {}).trouble(), "");
}

// There are no more retries, so no other line reports it.
TEST_F(RecorderTest, AtTheEndTheSummaryAloneTellsOfAFullDisk) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  Make();
  recorder_->Begin(0);
  ASSERT_THAT(Warnings(), IsEmpty());
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  const std::string trouble = recorder_->Finish({}, {}).trouble();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(trouble, HasSubstr("metrics.jsonl: cannot be written"));
  EXPECT_THAT(Warnings(), IsEmpty());
}

TEST_F(RecorderTest, ARunWithoutACheckpointIsNotToBeResumed) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  config_.mutable_tensorboard()->set_enabled(true);
  const rlimit none{0, before.rlim_max};
  for (const bool kept : {false, true}) {
    if (kept) std::filesystem::create_directories(dir_ / "checkpoints/step-00000000-g1");
    Make();
    recorder_->Begin(0);
    recorder_->Keep().wait();  // its files are there
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
    Log(1);
    const std::string lost = recorder_->Finish({}, {}).lost();
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_THAT(lost, HasSubstr("TensorBoard will not show these data"));
    EXPECT_EQ(lost.find("--resume") != std::string::npos, kept) << lost;
    recorder_.reset();
    std::filesystem::remove(path_);
  }
}

TEST_F(RecorderTest, TheLastWordHasAllThatWasCounted) {
  Make(nullptr, {{.step = 25, .at = 1, .cause = "signal 9"}});
  recorder_->Begin(10);
  events::Event event;
  event.mutable_member_change()->set_kind(events::MemberChange::LOST);
  recorder_->Record(event);
  event.mutable_shares_changed()->add_shares()->set_slices(5);
  for (int i = 0; i < 2; ++i) recorder_->Record(event);
  (void)sent_.Text();
  events::Summary summary;
  summary.mutable_at()->set_step(30);
  summary.set_end(events::Summary::INTERRUPTED);
  summary.mutable_measured()->set_step_ms(8);
  events::Status status;
  status.set_waits("for rank 1");
  summary = recorder_->Finish(summary, status);
  EXPECT_EQ(summary.workers_lost(), 1);
  EXPECT_EQ(summary.changes_size(), 1);
  EXPECT_EQ(summary.shares_changed(), 2);
  EXPECT_EQ(summary.shares().shares(0).slices(), 5);
  ASSERT_EQ(summary.restarts_size(), 1);
  EXPECT_EQ(summary.restarts(0).from_step(), 10);
  EXPECT_EQ(sent_.Events().back().summary().workers_lost(), 1);
  EXPECT_THAT(Steps(), ElementsAre(-1, 0, 0, 0, 30));
  EXPECT_THAT(Bytes(), HasSubstr(R"("reason":"interrupted")"));
  status = ReadStatusPage(dir_ / kEventLog).value();
  EXPECT_EQ(status.state(), "interrupted");
  EXPECT_EQ(status.progress().measured().step_ms(), 8);
  EXPECT_EQ(status.waits(), "");
}

TEST_F(RecorderTest, ARunThatNeverBeganLeavesNoLine) {
  Make();
  EXPECT_EQ(recorder_->Finish({}, {}).trouble(), "");
  EXPECT_EQ(Bytes(), "");
}

// Each of them would wait a second for a launcher that is stopped.
TEST(EventPipeTest, WaitsOnceForAStoppedReaderAndLosesNothing) {
  constexpr int kEvents = 600;
  const SentEvents sent;
  EventPipe pipe(sent.fd());
  const auto send = [&](int step) {
    events::Event event;
    event.mutable_log()->mutable_at()->set_step(step);
    pipe.Send(event);
  };
  for (int i = 0; i < kEvents; ++i) send(i);
  std::string text = sent.Text();
  for (int i = kEvents; i < 2 * kEvents; ++i) {
    send(i);
    text += sent.Text();
  }
  const std::vector<events::Event> events = SentEvents::EventsOf(text);
  ASSERT_EQ(events.size(), 2u * kEvents);
  for (int i = 0; i < 2 * kEvents; ++i) {
    EXPECT_EQ(events[static_cast<size_t>(i)].log().at().step(), i);
  }
}

}  // namespace
}  // namespace muster::testing

// Overrides the C library's write.
extern "C" ssize_t write(int fd, const void* data, size_t size) {
  if (fd == muster::testing::slow_fd) {
    const std::scoped_lock wait(muster::testing::slow_disk);
  }
  return ::syscall(SYS_write, fd, data, size);
}
