// The records of lost servers stay, even if steps are repeated.
#include "ps/record/restart_record.h"

#include <gmock/gmock-matchers.h>

#include <fstream>

#include "common/base/error.h"
#include "ps/record/recorder.h"
#include "tests/data/temp_dir.h"
#include "tests/model/small_graph.h"

namespace muster {
namespace {

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
  // Begins the run, or resumes it at `step`, and loses its server. Returns what a checkpoint keeps.
  RunLog::Kept Run(const RunLog::Kept* kept, int64_t step, std::vector<LostServer> losses) {
    checkpoint::State state;
    if (kept != nullptr) *state.mutable_metrics() = kept->metrics;
    if (kept != nullptr) *state.mutable_events() = kept->events;
    config::Config config;
    config.mutable_run()->set_dir(dir_.string());
    config.mutable_tensorboard()->set_enabled(false);
    const Graph graph =
        testing::SmallGraph(R"(layer { name: "fc" dense { units: 5 } })", {2, 2, 1});
    Recorder recorder(config, graph, -1, kept != nullptr ? &state : nullptr, std::move(losses));
    recorder.Begin(step);
    const RunLog::Kept now = recorder.Keep().get();
    events::Event event;
    event.mutable_log()->mutable_at()->set_step(step + 10);
    recorder.Record(event);
    summary_ = recorder.Finish({}, {});
    return now;
  }
  std::vector<std::string> Lines() const {
    std::vector<std::string> lines;
    std::ifstream file(dir_ / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  const testing::TempDir dir_;
  events::Summary summary_;
};

TEST_F(RestartRecord, ALossIsToldOnceThoughItsStepsAreUndone) {
  const RunLog::Kept kept = Run(nullptr, 10, {});
  (void)Run(&kept, 10, {{25, 1, "signal 9"}});
  ASSERT_EQ(Lines().size(), 3u);  // and an interval, and the summary
  EXPECT_THAT(Lines()[0], HasSubstr(R"("event":"server_restarted","lost_at_step":25,)"
                                    R"("cause":"signal 9","from_step":10,)"));
  // Another loss before the next checkpoint: the same steps, and both losses are recorded.
  (void)Run(&kept, 10, {{{}, 1, "silent"}});
  ASSERT_EQ(Lines().size(), 4u);
  EXPECT_THAT(Lines()[0], HasSubstr(R"("cause":"signal 9")"));
  EXPECT_THAT(Lines()[1], HasSubstr(R"("lost_at_step":null,"cause":"silent")"));
  ASSERT_EQ(summary_.restarts_size(), 2);
  EXPECT_EQ(summary_.restarts(0).lost_at_step(), 25);
  EXPECT_FALSE(summary_.restarts(1).has_lost_at_step());
  // A later resume by hand adds no loss and keeps the others.
  (void)Run(&kept, 10, {});
  EXPECT_EQ(Lines().size(), 4u);
  EXPECT_EQ(summary_.restarts_size(), 2);
}

}  // namespace
}  // namespace muster
