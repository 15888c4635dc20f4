// Merging and reading traces with known times.
#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/trace/critical_path.h"
#include "cli/trace/merge.h"
#include "cli/trace/summary.h"
#include "cli/trace/trace_data.h"
#include "common/base/error.h"
#include "tests/data/temp_dir.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using Json = nlohmann::json;

constexpr double kStart = 5e9;  // hours after the clock's start, as in practice

std::string Named(int process, const std::string& name, const std::string& thread) {
  const Json names{{{"ph", "M"},
                    {"pid", process},
                    {"tid", 0},
                    {"name", "process_name"},
                    {"args", {{"name", name}}}},
                   {{"ph", "M"},
                    {"pid", process},
                    {"tid", 1},
                    {"name", "thread_name"},
                    {"args", {{"name", thread}}}}};
  return names[0].dump() + "\n" + names[1].dump() + "\n";
}

std::string Span(int process, const std::string& kind, double begin, double end, Json args) {
  const bool chunk = args.contains("chunk");
  return Json{{"ph", "X"},          {"pid", process},
              {"tid", 1},           {"ts", kStart + begin},
              {"dur", end - begin}, {"name", kind + (chunk ? " chunk 0" : " a")},
              {"cat", kind},        {"args", args}}
             .dump() +
         "\n";
}

std::string Nested(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

// A worker's step: waits for the weights, runs a layer forward and backward, pushes.
std::string Step(int process, int64_t step, double begin, double forward, double backward,
                 double pushed, double end) {
  const Json here{{"step", step}}, chunk{{"step", step}, {"chunk", 0}};
  return Span(process, "step", begin, end, here) +
         (forward > begin ? Span(process, "wait", begin, forward, chunk) : "") +
         Span(process, "forward", forward, backward - 10, here) +
         Span(process, "loss", backward - 10, backward, here) +
         Span(process, "backward", backward, pushed, here) +
         Span(process, "push", pushed, end, chunk);
}

class TraceFileTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return (dir_ / name).string(); }
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(Path(name)) << text;
    return Path(name);
  }

  // Two workers and one chunk, whose update takes the server 30 us. Worker 1 is slower.
  std::vector<std::string> TwoSteps() {
    return {Write("server", Named(1, "server", "pool 0") +
                                Span(1, "update", 970, 1000, {{"step", 1}, {"chunk", 0}}) +
                                Span(1, "update", 1920, 1950, {{"step", 2}, {"chunk", 0}})),
            Write("worker-0", Named(2, "worker 0", "compute") + Step(2, 1, 0, 0, 310, 900, 910) +
                                  Step(2, 2, 910, 1020, 1310, 1900, 1910) +
                                  Step(2, 3, 1910, 1960, 2200, 2900, 2910)),
            Write("worker-1", Named(3, "worker 1", "compute") + Step(3, 1, 0, 0, 310, 950, 960) +
                                  Step(3, 2, 960, 1010, 1310, 1890, 1900) +
                                  Step(3, 3, 1900, 1970, 2200, 2900, 2910))};
  }

  const testing::TempDir dir_;
};

TEST_F(TraceFileTest, MergedTimesCountFromTheFirstSpan) {
  const MergedTrace merged = MergeTrace(TwoSteps(), Path("trace.json"));
  EXPECT_THAT(merged.missing, IsEmpty());
  EXPECT_EQ(merged.spans, 2u + 2 * 3 * 5 + 4);
  const Trace trace = ReadTrace(Path("trace.json"));
  ASSERT_THAT(trace.tracks, SizeIs(3));
  EXPECT_EQ(trace.tracks[0].Name(), "server, pool 0");
  EXPECT_NEAR(trace.tracks[0].spans[0].begin, 970, 0.001);
  EXPECT_EQ(trace.tracks[1].spans[0].kind, "step");
  EXPECT_EQ(trace.tracks[1].spans[0].begin, 0);
  EXPECT_EQ(trace.tracks[1].spans[1].parent, 0);
  EXPECT_NEAR(trace.tracks[1].spans[0].own(), 0, 0.01);
}

TEST_F(TraceFileTest, ThePartOfAnotherHostIsAligned) {
  const double ahead = 3600e6;
  const std::string other =
      Named(3, "worker 1", "compute") + Span(3, "forward", ahead + 30, ahead + 40, {{"step", 1}});
  const std::vector<std::string> parts{
      Write("w0", Named(2, "worker 0", "compute") + Span(2, "forward", 20, 40, {{"step", 1}})),
      Write("w1", ClockLine(3, 3600) + "\n" + other),
      Write("w2", R"({"ph":"M","pid":4,"tid":0,"name":"muster_clock","args":{"ahead_us":"x"}})")};
  EXPECT_EQ(MergeTrace(parts, Path("trace.json")).spans, 2u);
  const Trace trace = ReadTrace(Path("trace.json"));
  ASSERT_THAT(trace.tracks, SizeIs(2));
  EXPECT_NEAR(trace.tracks[1].spans[0].begin, 10, 0.01);
  EXPECT_NEAR(trace.tracks[1].spans[0].end, 20, 0.01);
}

TEST_F(TraceFileTest, ArrowsGoFromPushToUpdateToWait) {
  MergeTrace(TwoSteps(), Path("trace.json"));
  std::ifstream in(Path("trace.json"));
  const Json file = Json::parse(in);
  std::map<int64_t, std::vector<Json>> arrows;
  for (const Json& event : file["traceEvents"]) {
    if (event["ph"] == "s" || event["ph"] == "f") arrows[event["id"]].push_back(event);
  }
  EXPECT_THAT(arrows, SizeIs(2 * 2 + 2 * 2));  // pushes and waits of two updates
  for (const auto& [id, ends] : arrows) {
    ASSERT_THAT(ends, SizeIs(2));
    EXPECT_LE(ends[0]["ts"], ends[1]["ts"]);
    EXPECT_NE(ends[0]["pid"], ends[1]["pid"]);
    EXPECT_EQ(ends[ends[0]["name"] == "gradient" ? 1 : 0]["pid"], 1);
  }
}

TEST_F(TraceFileTest, TheCriticalPathCrossesTheProcesses) {
  MergeTrace(TwoSteps(), Path("trace.json"));
  const Trace trace = ReadTrace(Path("trace.json"));
  const std::vector<WorkerStep> steps = WorkerSteps(trace);
  ASSERT_THAT(steps, SizeIs(4));  // the third step is incomplete
  EXPECT_NEAR(steps[0].end, 1020, 0.001);
  EXPECT_NEAR(steps[0].work, 900, 0.01);

  const std::vector<PathPart> path = CriticalPath(trace, steps, 1);
  std::vector<std::string> who;
  std::vector<int> us;
  for (const PathPart& part : path) {
    who.push_back(part.who);
    us.push_back(static_cast<int>(std::lround(part.total())));
  }
  EXPECT_THAT(who, ElementsAre("worker 1, compute", "worker 1 to server", "server, pool 0",
                               "server to worker 0"));
  EXPECT_THAT(us, ElementsAre(960, 10, 30, 20));
  EXPECT_EQ(path[0].first, "forward a");
  EXPECT_EQ(path[0].last, "push chunk 0");
  EXPECT_NEAR(path[0].kinds.at("backward"), 640, 0.01);
  EXPECT_THAT(CriticalPath(trace, steps, 3), IsEmpty());
}

TEST_F(TraceFileTest, TheSummarySaysWhereTheTimeGoes) {
  MergeTrace(TwoSteps(), Path("trace.json"));
  const std::vector<std::string> lines = TraceSummary(ReadTrace(Path("trace.json")));
  // 0 to 2,910 us: forward 300 + 280 + 230, wait 110 + 50.
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("worker 0, compute"), HasSubstr("backward 64.6 %"),
                                    HasSubstr("forward 27.8 %"), HasSubstr("wait 5.5 %"))));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("server, pool 0"), HasSubstr("update 2.1 %"))));
  EXPECT_THAT(lines, Contains(HasSubstr("0.0 % of the 0.03 ms of updates")));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("0.12 ms"), HasSubstr("worker 0, step 1"),
                                    HasSubstr("backward a to forward a"),
                                    HasSubstr("wait chunk 0 0.11 ms"))));
  EXPECT_THAT(lines, Contains(HasSubstr("Critical path of step 1")));
}

TEST_F(TraceFileTest, AnEvaluationIsNoGap) {
  std::vector<std::string> parts = TwoSteps();
  parts.push_back(Write("worker-2", Named(4, "worker 2", "compute") +
                                        Step(4, 1, 0, 0, 310, 900, 910) +
                                        Span(4, "evaluate", 910, 1610, {{"step", 2}}) +
                                        Span(4, "forward", 920, 1600, {{"step", 2}}) +
                                        Step(4, 2, 1610, 1610, 1800, 1850, 1900) +
                                        Step(4, 3, 1900, 1970, 2200, 2900, 2910)));
  MergeTrace(parts, Path("trace.json"));
  const Trace trace = ReadTrace(Path("trace.json"));
  std::vector<int64_t> steps;
  for (const WorkerStep& step : WorkerSteps(trace)) {
    if (step.track->process == "worker 2") steps.push_back(step.step);
  }
  EXPECT_THAT(steps, ElementsAre(2));
  const std::vector<std::string> lines = TraceSummary(trace);
  // 700 of 2,910 us.
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("worker 2"), HasSubstr("evaluate 24.1 %"))));
}

// The notices of two chunks go back and forth within microseconds.
TEST_F(TraceFileTest, ShortPartsOfTheCriticalPathAreJoined) {
  const auto chunk = [](int number) { return Json{{"step", 1}, {"chunk", number}}; };
  const std::string server =
      Write("server", Named(1, "server", "pool 0") + Span(1, "update", 952, 956, chunk(0)) +
                          Span(1, "update", 962, 1000, chunk(1)));
  const Json first{{"step", 1}}, second{{"step", 2}};
  const std::string worker =
      Write("worker-0",
            Named(2, "worker 0", "compute") + Span(2, "step", 0, 960, first) +
                Span(2, "forward", 0, 500, first) + Span(2, "backward", 500, 940, first) +
                Span(2, "push", 940, 950, chunk(0)) +
                Span(2, "wait", 950, 957, {{"step", 2}, {"chunk", 0}}) +
                Span(2, "push", 957, 960, chunk(1)) + Span(2, "step", 960, 2000, second) +
                Span(2, "wait", 960, 1010, {{"step", 2}, {"chunk", 1}}) +
                Span(2, "forward", 1010, 1500, second) + Span(2, "backward", 1500, 2000, second) +
                Span(2, "step", 2000, 2100, {{"step", 3}}) +
                Span(2, "forward", 2000, 2100, {{"step", 3}}));
  MergeTrace({server, worker}, Path("trace.json"));
  const Trace trace = ReadTrace(Path("trace.json"));
  std::vector<std::string> who;
  double sum = 0;
  for (const PathPart& part : CriticalPath(trace, WorkerSteps(trace), 1)) {
    who.push_back(part.who);
    sum += part.total();
  }
  EXPECT_THAT(who, ElementsAre("worker 0, compute", "server, pool 0", "server to worker 0"));
  EXPECT_NEAR(sum, 1010, 0.01);
}

TEST_F(TraceFileTest, AProcessThatWasKilledLeavesWhatItCould) {
  std::vector<std::string> parts = TwoSteps();
  std::filesystem::resize_file(parts[1], std::filesystem::file_size(parts[1]) - 20);
  parts.push_back(Path("worker-2"));
  const MergedTrace merged = MergeTrace(parts, Path("trace.json"));
  EXPECT_THAT(merged.missing, ElementsAre(Path("worker-2")));
  EXPECT_EQ(merged.spans, 2u + 2 * 3 * 5 + 4 - 1);
  EXPECT_THAT(ReadTrace(Path("trace.json")).tracks, SizeIs(3));
}

TEST_F(TraceFileTest, WithoutSpansThereIsNoStep) {
  MergeTrace({Write("server", Named(1, "server", "loop"))}, Path("trace.json"));
  EXPECT_THAT(TraceSummary(ReadTrace(Path("trace.json"))), ElementsAre(HasSubstr("no step")));
}

TEST_F(TraceFileTest, WhateverIsMergedCanBeRead) {
  for (size_t depth = 90; depth < 105; ++depth) {
    const std::string part =
        Write("part", Named(1, "server", "loop") +
                          R"({"ph":"M","name":"a","pid":1,"tid":1,"args":{"a":)" + Nested(depth) +
                          "}}\n");
    MergeTrace({part}, Path("trace.json"));
    EXPECT_NO_THROW(ReadTrace(Path("trace.json"))) << depth;
  }
}

TEST_F(TraceFileTest, AFailedWriteLeavesThePartsAndTheOlderTrace) {
  const std::vector<std::string> parts = TwoSteps();
  const auto code = [&](const std::string& path) {
    try {
      MergeTrace(parts, path);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(path));
      return error.code();
    }
    return ExitCode::kOk;
  };
  EXPECT_EQ(code(Path("missing/trace.json")), ExitCode::kFailure);
  // The target is a directory and cannot be replaced.
  std::filesystem::create_directories(Path("directory/in"));
  EXPECT_EQ(code(Path("directory")), ExitCode::kFailure);
  for (const std::string& part : parts) EXPECT_TRUE(std::filesystem::exists(part));
  EXPECT_FALSE(std::filesystem::exists(Path("directory.partial")));
  EXPECT_THROW(CheckTracePath(Path("directory")), Error);
  EXPECT_NO_THROW(CheckTracePath(Write("older.json", "{}")));
  EXPECT_FALSE(std::filesystem::exists(Path("older.json.partial")));
  EXPECT_EQ(std::filesystem::file_size(Path("older.json")), 2u);
}

// Mistyped calls of `muster trace FILE --merge PART …`.
TEST_F(TraceFileTest, WhatIsNoTraceIsLeftAsItIs) {
  const std::vector<std::string> parts = TwoSteps();
  const auto refused = [&](const std::vector<std::string>& from, const std::string& path,
                           const std::string& says) {
    std::ifstream before(path);
    const std::string text{std::istreambuf_iterator<char>(before), {}};
    try {
      MergeTrace(from, path, MergeMode::kRefuseOthers);
      ADD_FAILURE() << path << " was written";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kData);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(says), Not(HasSubstr("exception"))));
    }
    std::ifstream after(path);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(after), {}), text);
  };
  const std::string notes = Write("notes.txt", "what I did on Monday\n");
  const std::string other = Write("other.json", R"({"traceEvents":[]})");
  refused(parts, notes, notes + ": expected a trace");
  refused(parts, other, other + ": expected a trace");
  refused(parts, parts[1], parts[1] + ": expected a trace");  // a part in place of the trace
  MergeTrace(parts, Path("trace.json"));
  for (const std::string& garbage :
       {notes, other, Write("empty", ""),
        Write("half", R"({"ph":"X","name":"step"})"
                      "\n"),
        Write("odd", R"({"ph":"X","name":"a","cat":"a","pid":1,"tid":1,"ts":"now","dur":1})"
                     "\n"),
        // It could be merged, but not read again.
        Write("far", R"({"ph":"X","name":"a","cat":"a","pid":1,"tid":1,"ts":1e308,"dur":1})"
                     "\n"),
        Write("nobody", R"({"ph":"M","name":"process_name","pid":1,"tid":1})"
                        "\n"),
        // Nested too deeply for the stack.
        Write("deep",
              R"({"ph":"M","name":"a","pid":1,"tid":1,"args":{"a":)" + Nested(500'000) + "}}\n")}) {
    refused({parts[0], garbage}, Path("trace.json"), garbage + ": expected a part");
  }
  refused({parts[0], Path("nowhere")}, Path("trace.json"), "No such file");
  MergeTrace(parts, Path("whole.json"));  // a trace in place of a part
  refused({parts[0], Path("whole.json")}, Path("trace.json"), "whole.json: expected a part");
  // Replaces an older trace and creates a new file.
  EXPECT_GT(MergeTrace(parts, Path("trace.json"), MergeMode::kRefuseOthers).spans, 0u);
  EXPECT_GT(MergeTrace(parts, Path("new.json"), MergeMode::kRefuseOthers).spans, 0u);
}

TEST_F(TraceFileTest, AFileThatIsNoTraceIsNamedInPlainWords) {
  for (const std::string& path :
       {Write("text", "x"), Write("empty", ""), Write("list", "[1]"),
        Write("object", R"({"otherData":{"dropped_spans":"none"},"traceEvents":[]})"),
        Write("name", R"({"otherData":{"dropped_spans":0},"traceEvents":[{"ph":"M","pid":1,)"
                      R"("tid":1,"name":"thread_name"}]})"),
        Write("pid", R"({"otherData":{"dropped_spans":0},"traceEvents":[{"ph":"M","pid":1e99,)"
                     R"("tid":1,"name":"x"}]})"),
        Write("time", R"({"otherData":{"dropped_spans":0},"traceEvents":[{"ph":"X","pid":1,)"
                      R"("tid":1,"name":"x","cat":"step","ts":1,"dur":1e308}]})"),
        Write("deep", R"({"otherData":{"dropped_spans":0},"traceEvents":[{"ph":"X","pid":1,)"
                      R"("tid":1,"name":"x","cat":"step","ts":1,"dur":1,"args":{"a":)" +
                          Nested(500'000) + "}}]}")}) {
    try {
      ReadTrace(path);
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kData);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(path + ": expected a trace"), HasSubstr("found"),
                                      Not(HasSubstr("exception"))));
    }
  }
}

}  // namespace
}  // namespace muster
