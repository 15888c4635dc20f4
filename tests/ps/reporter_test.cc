// What the server reports: events that a launcher reads again, and a launcher that does not read.
#include "ps/reporter.h"

#include <fcntl.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/base/unique_fd.h"
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

// A run that goes on after somebody, or a broken disk, has cut its file: what is new begins a line.
TEST_F(ReporterTest, ACutFileGoesOnWithAWholeLine) {
  const testing::TempDir dir;
  const std::string path = dir / "metrics.jsonl";
  for (const std::string before : {"{\"a\":1}\n{\"b\":2}\n{\"c\"", "{\"a\":1}\n", "{\"a\"", ""}) {
    std::ofstream(path, std::ios::trunc) << before;
    checkpoint::Metrics resumed;
    resumed.set_bytes(1000);
    Reporter reporter(path, write_end_.get(), &resumed);
    reporter.CutMetrics();
    reporter.Metrics(events::Log());
    std::ifstream file(path);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    EXPECT_EQ(lines.size(), static_cast<size_t>(std::ranges::count(before, '\n')) + 1);
    EXPECT_THAT(lines.back(), HasSubstr("\"time\""));
    EXPECT_THAT(Text(), HasSubstr("the lines between are lost"));
  }
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
  std::string pattern = std::filesystem::temp_directory_path() / "muster-reporter-XXXXXX";
  const std::filesystem::path dir = ::mkdtemp(pattern.data());
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
  std::filesystem::remove_all(dir);
  reporter.Metrics(line);
  reporter.Metrics(line);
  const std::vector<events::Event> read = Events();
  ASSERT_EQ(read.size(), 1u);
  EXPECT_THAT(read[0].warning().message(), HasSubstr("metrics.jsonl has been removed"));
}

}  // namespace
}  // namespace muster
