// metrics.jsonl keeps the records of lost servers, even if steps are repeated.
#include "ps/record/restart_record.h"

#include <gmock/gmock-matchers.h>

#include <fstream>

#include "common/base/error.h"
#include "ps/record/recorder.h"
#include "tests/data/temp_dir.h"
#include "tests/model/small_graph.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LostServerTest, AsTheLauncherSaysIt) {
  const auto losses = ParseLosses({"120,4711.250,signal 9", "-1,0.5,silent"});
  ASSERT_EQ(losses.size(), 2u);
  EXPECT_EQ(losses[0].step, 120);
  EXPECT_EQ(losses[0].at, 4711.25);
  EXPECT_EQ(losses[0].cause, "signal 9");
  EXPECT_EQ(losses[1].step, std::nullopt);
  for (const char* wrong : {"", "1,2", "x,2,signal 9", "1,y,signal 9", "1 ,2,signal 9"}) {
    EXPECT_THROW(ParseLosses({wrong}), Error) << wrong;
  }
}

class RestartRecord : public ::testing::Test {
 protected:
  // Resumes from a checkpoint of `step` that includes the first `bytes` of the file.
  void GoOn(int64_t bytes, int64_t step, std::vector<LostServer> losses,
            const std::string& unwritten = "") {
    checkpoint::GrownFile kept;
    kept.set_bytes(bytes);
    kept.set_unwritten(unwritten);
    kept.set_xxh3(HashOf(testing::ReadBytes(path_).substr(0, static_cast<size_t>(bytes))));
    config::Config config;
    config.mutable_run()->set_dir(dir_.string());
    config.mutable_tensorboard()->set_enabled(false);
    const Graph graph =
        testing::SmallGraph(R"(layer { name: "fc" dense { units: 5 } })", {2, 2, 1});
    Recorder recorder(config, graph, -1, &kept, std::move(losses));
    recorder.Begin(step, DueLines{.step = step});
    recorder.KeepMetrics().wait();
    restarts_ = ReadMetricsEvents(testing::ReadBytes(path_)).restarts;
  }
  void Write(const std::string& text) { std::ofstream(path_, std::ios::app) << text; }
  std::vector<std::string> Lines() const {
    std::vector<std::string> lines;
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  const testing::TempDir dir_;
  const std::string path_ = dir_ / "metrics.jsonl";
  std::vector<events::Restarted> restarts_;
};

constexpr const char* kTen = "{\"step\":10}\n";
const auto kTenBytes = static_cast<int64_t>(std::string(kTen).size());

TEST_F(RestartRecord, ALossIsToldOnceThoughItsStepsAreUndone) {
  Write(kTen);
  Write("{\"step\":20}\n");
  GoOn(kTenBytes, 10, {{25, 1, "signal 9"}});
  ASSERT_EQ(Lines().size(), 2u);
  EXPECT_EQ(Lines()[0] + "\n", kTen);
  EXPECT_THAT(Lines()[1], HasSubstr(R"("event":"server_restarted","lost_at_step":25,)"
                                    R"("cause":"signal 9","from_step":10,)"));
  // Another loss before the next checkpoint: the same ten steps, and both losses are recorded.
  Write("{\"step\":20}\n{\"step\":3");
  GoOn(kTenBytes, 10, {{{}, 1, "silent"}});
  ASSERT_EQ(Lines().size(), 3u);
  EXPECT_THAT(Lines()[1], HasSubstr(R"("cause":"signal 9")"));
  EXPECT_THAT(Lines()[2], HasSubstr(R"("lost_at_step":null,"cause":"silent")"));
  ASSERT_EQ(restarts_.size(), 2u);
  EXPECT_EQ(restarts_[0].lost_at_step(), 25);
  EXPECT_FALSE(restarts_[1].has_lost_at_step());
  // A later resume by hand adds no loss and keeps the others.
  GoOn(kTenBytes, 10, {});
  EXPECT_EQ(Lines().size(), 3u);
  EXPECT_EQ(restarts_.size(), 2u);
}

TEST_F(RestartRecord, WhatAFullDiskDidNotTakeIsNotWrittenTwice) {
  const std::string event = R"({"event":"server_restarted","cause":"signal 9","from_step":5})"
                            "\n";
  Write(kTen);
  Write(event);  // written although the checkpoint holds it as unwritten
  GoOn(kTenBytes, 10, {}, event);
  EXPECT_EQ(Lines().size(), 2u);
  EXPECT_THAT(restarts_, ElementsAre(::testing::Property(&events::Restarted::from_step, 5)));
}

TEST_F(RestartRecord, WhatSomebodyElseWroteIsNoEvent) {
  Write("{\"event\":\n[\"event\"]\n{\"a\":\"event\"}\n");
  Write("{\"event\":\"server_restarted\",\"cause\":7,\"from_step\":\"x\"}\n");
  const MetricsEvents read = ReadMetricsEvents(testing::ReadBytes(path_));
  EXPECT_EQ(read.lines.size(), 1u);
  EXPECT_THAT(read.restarts, ElementsAre(::testing::Property(&events::Restarted::from_step, 0)));
  EXPECT_TRUE(ReadMetricsEvents("").lines.empty());
}

}  // namespace
}  // namespace muster
