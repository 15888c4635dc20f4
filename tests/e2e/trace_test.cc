// The trace of the real programs.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/e2e/real_job.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using Json = nlohmann::json;

struct Span {
  std::string name, kind;
  double begin, end;
  Json args;
};

class TraceFile : public RealJob {
 protected:
  Outcome Trace(std::vector<std::string> settings = {}) {
    settings.insert(settings.end(), {"run.trace_file=" + Path("trace.json").string(),
                                     "run.trace_first_step=2", "run.trace_steps=3"});
    const Outcome outcome = Launch(settings);
    if (outcome.exit_code == 0) Read();
    return outcome;
  }

  void Read() {
    std::ifstream in(Path("trace.json"));
    const Json file = Json::parse(in);
    EXPECT_EQ(file["otherData"]["dropped_spans"], 0);
    std::map<int, std::string> processes;
    std::map<std::pair<int, int>, std::string> threads;
    for (const Json& event : file["traceEvents"]) {
      const int pid = event["pid"], tid = event["tid"];
      if (event["name"] == "process_name") processes[pid] = event["args"]["name"];
      if (event["name"] == "thread_name") {
        threads[{pid, tid}] = processes[pid] + ", " + event["args"]["name"].get<std::string>();
      }
    }
    tracks_.clear();
    for (const Json& event : file["traceEvents"]) {
      if (event["ph"] != "X") continue;
      const double begin = event["ts"], length = event["dur"];
      tracks_[threads.at({event["pid"], event["tid"]})].push_back(
          {event["name"], event["cat"], begin, begin + length, event["args"]});
    }
    for (const Json& event : file["traceEvents"]) {
      if (event["ph"] == "s") starts_.insert(event["id"].get<int>());
      if (event["ph"] == "f") finishes_.insert(event["id"].get<int>());
    }
  }

  std::map<std::string, std::vector<Span>> tracks_;
  std::set<int> starts_, finishes_;
};

TEST_F(TraceFile, HasATrackPerThreadAndEveryLayerOncePerSlice) {
  const Outcome outcome = Succeeded(Trace());
  EXPECT_THAT(outcome.log, AllOf(HasSubstr("trace.json"), HasSubstr("ui.perfetto.dev")));
  std::vector<std::string> names;
  for (const auto& [name, spans] : tracks_) names.push_back(name);
  EXPECT_THAT(names, IsSupersetOf({"server, loop", "worker 0, compute", "worker 1, compute",
                                   "worker 0, prefetch 0", "worker 1, prefetch 0"}));

  const std::set<std::string> all{"conv",   "relu",  "pool", "norm", "flat",
                                  "hidden", "relu2", "drop", "out",  "loss"};
  for (const std::string worker : {"worker 0", "worker 1"}) {
    const std::vector<Span>& spans = tracks_.at(worker + ", compute");
    std::map<std::pair<int64_t, std::string>, int> counts;
    std::set<std::string> forward, backward;
    int slices = 0;
    std::set<int64_t> steps;
    for (const Span& span : spans) {
      if (span.kind == "slice") ++slices;
      if (span.kind == "step") steps.insert(span.args["step"].get<int64_t>());
      if (span.kind == "forward" || span.kind == "loss") forward.insert(span.name);
      if (span.kind == "backward") backward.insert(span.name);
      ++counts[{span.args.value("step", -1), span.name}];
    }
    EXPECT_EQ(steps, (std::set<int64_t>{2, 3, 4}));
    EXPECT_EQ(slices, 3 * 2);  // four slices, two workers
    const std::set<std::string> must{"forward conv",   "forward pool", "forward norm",
                                     "forward hidden", "forward drop", "forward out",
                                     "loss loss"};
    EXPECT_THAT(forward, IsSupersetOf(must));
    EXPECT_THAT(backward,
                IsSupersetOf({"backward conv", "backward pool", "backward norm", "backward hidden",
                              "backward drop", "backward out", "backward loss"}));
    for (const std::string& name : forward) {
      EXPECT_TRUE(all.count(name.substr(name.find(' ') + 1))) << name;
    }
    for (const auto& [key, count] : counts) {
      const auto& [step, name] = key;
      if (forward.count(name) || backward.count(name)) {
        EXPECT_EQ(count, 2) << worker << " step " << step << ": " << name;
      }
      if (name.starts_with("push")) {
        EXPECT_EQ(count, 1) << worker << " step " << step << ": " << name;
      }
    }
  }
}

// Every chunk of every step is updated once, after both workers have started pushing it.
TEST_F(TraceFile, FollowsAChunkThroughTheProcesses) {
  for (const std::string transport : {"LOCAL", "IPC"}) {
    ASSERT_EQ(Trace({"cluster.transport=" + transport}).exit_code, 0);
    using Key = std::pair<int64_t, int64_t>;
    std::map<Key, std::vector<double>> pushed;
    std::map<Key, std::vector<const Span*>> updates;
    for (const auto& [track, spans] : tracks_) {
      for (const Span& span : spans) {
        const Key key{span.args.value("step", -1), span.args.value("chunk", -1)};
        if (span.kind == "push") pushed[key].push_back(span.begin);
        if (span.kind == "update") updates[key].push_back(&span);
      }
    }
    EXPECT_GE(updates.size(), 3u * 4) << transport;
    for (const auto& [key, spans] : updates) {
      EXPECT_THAT(key.first, ::testing::AllOf(::testing::Ge(2), ::testing::Le(4)));
      ASSERT_EQ(spans.size(), 1u) << "step " << key.first << ", chunk " << key.second;
      ASSERT_EQ(pushed[key].size(), 2u) << "step " << key.first << ", chunk " << key.second;
      for (const double begin : pushed[key]) EXPECT_LE(begin, spans[0]->begin);
    }
    EXPECT_GE(starts_.size(), 2 * updates.size());  // an arrow from each push
    EXPECT_EQ(starts_, finishes_);
  }
}

TEST_F(TraceFile, SpansOfOneThreadNest) {
  ASSERT_EQ(Trace().exit_code, 0);
  size_t nested = 0;
  for (const auto& [track, spans] : tracks_) {
    std::vector<const Span*> open;
    double last = 0;
    for (const Span& span : spans) {  // ordered by begin
      EXPECT_GE(span.begin, last - 0.0015) << track << ": " << span.name;
      last = span.begin;
      while (!open.empty() && open.back()->end <= span.begin + 0.0015) open.pop_back();
      if (!open.empty()) {
        ++nested;
        EXPECT_LE(span.end, open.back()->end + 0.0015)  // times have three decimals
            << track << ": " << span.name << " in " << open.back()->name;
      }
      open.push_back(&span);
    }
  }
  EXPECT_GT(nested, 100u);
}

TEST_F(TraceFile, ChangesNoBits) {
  const Outcome traced = Succeeded(Trace()), plain = Succeeded(Launch({}));
  EXPECT_EQ(traced.hash(), plain.hash());
  EXPECT_THAT(plain.log, ::testing::Not(HasSubstr("perfetto")));
  for (const auto& file : std::filesystem::directory_iterator(Path("run0"))) {
    EXPECT_NE(file.path().extension(), ".part");
  }
}

class TraceCommand : public RealJob {
 protected:
  int Run(const std::vector<std::string>& arguments) {
    Process process(arguments, Path("log"));
    const int code = process.Wait(60);
    log_ = process.Log();
    return code;
  }
  int Launch(const std::vector<std::string>& more) {
    return Run(LaunchWords(Path("tiny.txtpb"), Path("data"), Path("run"), {}, more));
  }
  std::string log_;
};

TEST_F(TraceCommand, SumsUpATrace) {
  const std::string file = Path("trace.json");
  ASSERT_EQ(Launch({"--trace", file, "--trace-steps", "1-4", "--steps", "8"}), 0) << log_;
  ASSERT_EQ(Run({"muster", "trace", file}), 0) << log_;
  EXPECT_THAT(log_, AllOf(HasSubstr("Steps 1 to 4"), HasSubstr("worker 1, compute"),
                          HasSubstr("backward"), HasSubstr("Critical path of step"),
                          HasSubstr("Longest gaps"), HasSubstr("Overlap")));
}

TEST_F(TraceCommand, AnImpossibleTraceIsRefusedBeforeAnythingStarts) {
  const std::vector<std::vector<std::string>> impossible{
      {"--trace", Path("missing/trace.json")},
      {"--trace", Path("")},
      {"--trace", "/dev/null"},
      {"--trace", Path("tiny.txtpb")},  // exists and is not a trace
      {"--trace", Path("t.json"), "--trace-steps", "9-3"},
      {"--trace", Path("t.json"), "--trace-steps", "x"},
      {"--trace", Path("t.json"), "--steps", "20"},  // ends before step 20
      {"--trace", Path("t.json"), "--trace-steps", "500", "--epochs", "1"},
  };
  for (const auto& arguments : impossible) {
    EXPECT_EQ(Launch(arguments), 2) << log_;
    EXPECT_THAT(log_, HasSubstr("trace"));
    EXPECT_FALSE(std::filesystem::exists(Path("run"))) << arguments[1];
  }
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST_F(TraceCommand, ARunThatEndsBeforeTheStepsSaysSo) {
  EXPECT_EQ(Launch({"--trace", Path("t.json"), "--trace-steps", "500", "--epochs", "100", "--set",
                    "evaluation.stop_at_accuracy=0.001"}),
            1);
  EXPECT_THAT(log_, AllOf(HasSubstr("Completed"), HasSubstr("before step 500")));
  EXPECT_TRUE(NothingLeft(2));
}

TEST_F(TraceCommand, AFailedRunLeavesATraceOfWhatWas) {
  const std::string file = Path("t.json");
  EXPECT_EQ(Launch({"--trace", file, "--trace-steps", "0-100", "--set", "learning_rate.base=100000",
                    "--epochs", "50"}),
            4)
      << log_;
  ASSERT_EQ(Run({"muster", "trace", file}), 0) << log_;
  EXPECT_THAT(log_, HasSubstr("Steps 0 to"));
}

// When a run is resumed, requested steps must be in the future and default ones are counted from
// the resumed step. Past steps that an earlier launch requested are no error.
TEST_F(TraceFile, OfARunThatGoesOn) {
  ASSERT_EQ(Trace({"run.steps=20"}).exit_code, 0);
  const std::string trace = Path("again.json");
  const auto resume = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"launch", "--resume", Path("run0")});
    return Muster(more, "run0");
  };
  const auto steps = [&] {
    tracks_.clear();
    std::filesystem::rename(trace, Path("trace.json"));
    Read();
    std::set<int64_t> traced;
    for (const Span& span : tracks_.at("worker 0, compute")) {
      if (span.kind == "step") traced.insert(span.args["step"].get<int64_t>());
    }
    return traced;
  };
  const Outcome early = resume({"--steps", "60", "--trace", trace, "--trace-steps", "5-8"});
  EXPECT_EQ(early.exit_code, 2);
  EXPECT_THAT(early.log,
              HasSubstr("resumes from step 20: expected steps within 20 to 59, got 5 to 8"));
  EXPECT_EQ(early.metrics.back()["step"], 20);
  const Outcome plain = Succeeded(resume({"--steps", "25"}));
  const Outcome named =
      Succeeded(resume({"--steps", "35", "--trace", trace, "--trace-steps", "26-27"}));
  EXPECT_EQ(steps(), (std::set<int64_t>{26, 27}));
  const Outcome usual = Succeeded(resume({"--steps", "80", "--trace", trace}));
  EXPECT_EQ(steps(), (std::set<int64_t>{55, 56, 57, 58, 59, 60, 61, 62, 63, 64}));
  const Outcome last = Succeeded(resume({"--steps", "84", "--trace", trace}));
  EXPECT_EQ(steps(), (std::set<int64_t>{80, 81, 82, 83}));
  const Outcome over = resume({"--trace", trace});
  EXPECT_EQ(over.exit_code, 2);
  EXPECT_THAT(over.log, HasSubstr("has done all 84 steps; there is no step left to trace"));
}

}  // namespace
}  // namespace muster::testing
