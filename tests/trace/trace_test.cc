// Recording: which events become spans.
#include "common/trace/trace.h"

#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "common/trace/session.h"
#include "proto/config.pb.h"
#include "tests/data/temp_dir.h"

namespace muster::trace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Json = nlohmann::json;

class TraceTest : public ::testing::Test {
 protected:
  void Begin(SessionOptions options) {
    options.path = (dir_ / "part").string();
    options.process = "worker \"1\"";
    session_ = std::make_unique<Session>(options, "main");
  }
  // Ends the session and returns the events of its part.
  std::vector<Json> End(const std::string& phase) {
    session_.reset();
    std::ifstream in(dir_ / "part");
    std::vector<Json> events;
    for (std::string line; std::getline(in, line);) {
      const Json event = Json::parse(line);
      if (event["ph"] == phase) events.push_back(event);
    }
    return events;
  }
  static std::vector<std::string> Names(const std::vector<Json>& events) {
    std::vector<std::string> names;
    for (const Json& event : events) names.push_back(event["name"]);
    return names;
  }

  const testing::TempDir dir_;
  std::unique_ptr<Session> session_;
};

TEST_F(TraceTest, SpansNestAndCarryWhatTheyAreAbout) {
  Begin({.number = 3, .first_step = 5, .steps = 1});
  AtStep(5);
  {
    const Span step("step");
    const Span slice("slice", {}, {.slice = 2});
    { const Span layer("forward", "conv1"); }
    { const Span push("push", {}, {.chunk = 7}); }
  }
  const auto spans = End("X");
  ASSERT_THAT(Names(spans), ElementsAre("step 5", "slice 2", "forward conv1", "push chunk 7"));
  for (const Json& span : spans) {
    EXPECT_EQ(span["pid"], 3);
    EXPECT_EQ(span["tid"], 3);  // the main thread
    EXPECT_EQ(span["args"]["step"], 5);
    EXPECT_GE(span["dur"], 0);
  }
  const auto end = [&](size_t i) {
    return spans[i]["ts"].get<double>() + spans[i]["dur"].get<double>();
  };
  for (const size_t inner : {1, 2, 3}) {
    EXPECT_GE(spans[inner]["ts"], spans[inner - 1 == 2 ? 1 : inner - 1]["ts"]);
    EXPECT_LE(end(inner), end(inner == 1 ? 0 : 1) + 0.001);
  }
  EXPECT_GE(spans[3]["ts"].get<double>(), end(2) - 0.001);
  EXPECT_EQ(spans[2]["cat"], "forward");
  EXPECT_EQ(spans[3]["args"]["chunk"], 7);
}

TEST_F(TraceTest, OnlyTheTracedStepsAreRecorded) {
  Begin({.first_step = 2, .steps = 2});
  for (int64_t step = 0; step < 6; ++step) {
    AtStep(step);
    EXPECT_EQ(Recording(), step == 2 || step == 3);
    const Span span("step");
  }
  EXPECT_THAT(Names(End("X")), ElementsAre("step 2", "step 3"));
  EXPECT_FALSE(Recording());
}

TEST_F(TraceTest, WhatDoesNotFitIsDroppedAndCounted) {
  Begin({.first_step = 0, .steps = 1, .events_per_thread = 4});
  AtStep(0);
  for (int i = 0; i < 10; ++i) const Span span("push", {}, {.chunk = i});
  session_.reset();
  EXPECT_THAT(End("X"), SizeIs(4));
  std::vector<int> dropped;
  for (const Json& event : End("M")) {
    if (event["name"] == "muster_dropped") dropped.push_back(event["args"]["spans"]);
  }
  EXPECT_THAT(dropped, ElementsAre(6));
}

TEST_F(TraceTest, WithoutASessionOrANameNothingIsRecorded) {
  NameThread("nobody asked");
  AtStep(0);
  EXPECT_FALSE(Recording());
  Begin({.first_step = 0, .steps = 1});
  AtStep(0);
  std::thread([] { const Span span("unnamed"); }).join();
  EXPECT_THAT(End("X"), IsEmpty());
}

TEST_F(TraceTest, ThreadsHaveTracksAndASuccessorGoesOn) {
  Begin({.first_step = 0, .steps = 1});
  AtStep(0);
  const auto work = [](const char* name, const char* kind) {
    NameThread(name);
    const Span span(kind, {}, {.step = 0});
  };
  std::thread(work, "pool 0", "first").join();
  std::thread(work, "pool 0", "second").join();
  std::thread(work, "pool 1", "third").join();
  session_.reset();
  const auto spans = End("X");
  ASSERT_THAT(spans, SizeIs(3));
  EXPECT_EQ(spans[0]["tid"], spans[1]["tid"]);
  EXPECT_NE(spans[0]["tid"], spans[2]["tid"]);
  std::vector<std::string> names;
  for (const Json& event : End("M")) {
    if (event["name"] == "thread_name") names.push_back(event["args"]["name"]);
    if (event["name"] == "process_name") {
      EXPECT_EQ(event["args"]["name"], "worker \"1\"");
    }
  }
  EXPECT_THAT(names, ElementsAre("main", "pool 0", "pool 1"));
}

TEST_F(TraceTest, NamesAreCopiedAndLongOnesCut) {
  Begin({.first_step = 0, .steps = 1});
  AtStep(0);
  {
    std::string name(100, 'x');
    const Span span("forward", name);
    name.assign(100, 'y');
  }
  { const Span quoted("load", "a\"b\\c"); }
  EXPECT_THAT(Names(End("X")), ElementsAre("forward " + std::string(63, 'x'), "load a\"b\\c"));
}

TEST_F(TraceTest, ThreadsOfOneNameAreToldApart) {
  Begin({.first_step = 0, .steps = 1});
  AtStep(0);
  const auto work = [] {
    NameThread("main");
    const Span span("work");
  };
  std::thread(work).join();
  std::thread(work).join();
  std::thread([&] {
    NameThread("main");
    std::thread(work).join();
  }).join();
  session_.reset();
  std::vector<std::string> names;
  for (const Json& event : End("M")) {
    if (event["name"] == "thread_name") names.push_back(event["args"]["name"]);
  }
  EXPECT_THAT(names, ElementsAre("main", "main (2)", "main (3)"));
  std::vector<int> tracks;
  for (const Json& event : End("X")) tracks.push_back(event["tid"]);
  EXPECT_THAT(tracks, ElementsAre(1001, 1001, 1002));
}

TEST_F(TraceTest, ManyThreadsRecordAtOnce) {
  Begin({.first_step = 0, .steps = 1});
  AtStep(0);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([t] {
        NameThread("thread " + std::to_string(t));
        for (int i = 0; i < 1000; ++i) const Span span("work", {}, {.slice = i});
      });
    }
  }
  EXPECT_THAT(End("X"), SizeIs(4000));
}

TEST_F(TraceTest, AConfigWithoutATraceFileMeansNone) {
  config::Config config;
  EXPECT_EQ(WorkerSession(config, 1).path, "");
  config.mutable_run()->set_trace_file("/x/trace.json");
  EXPECT_EQ(WorkerSession(config, 1).path, "/x/trace.json.worker-1.part");
  config.mutable_run()->set_dir("/run");
  EXPECT_EQ(WorkerSession(config, 1).path, "/run/trace.worker-1.part");
  EXPECT_EQ(ServerSession(config).path, "/run/trace.server.part");
}

}  // namespace
}  // namespace muster::trace
