// The combined effect of worker.devices, the environment and the number of workers.
#include "cli/gpu/gpu_plan.h"

#include <gmock/gmock.h>

#include "common/base/error.h"
#include "tests/cli/gpu/gpu_fixture.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

GpuRequest Request(const std::string& devices, bool typed = true) {
  return {.devices = ParseDevices(devices), .origin = "--devices " + devices, .typed = typed};
}

VisibleGpus All(const GpuSnapshot& seen) {
  return ReadVisibleDevices(nullptr, seen, [] { return std::vector<std::string>(); });
}

VisibleGpus Only(std::initializer_list<size_t> numbers) {
  return {.limited = true, .value = "x", .uuids = Names(numbers)};
}

GpuPlan Plan(const GpuRequest& request, const GpuSnapshot& seen) {
  return PlanGpus(request, seen, All(seen));
}

std::string Refusal(const GpuRequest& request, const GpuSnapshot& seen,
                    const VisibleGpus& visible) {
  try {
    (void)PlanGpus(request, seen, visible);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "";
}

TEST(DevicesTest, WhatCanBeSaid) {
  using Kind = DeviceWish::Kind;
  EXPECT_EQ(ParseDevices("").kind, Kind::kNotSaid);
  EXPECT_EQ(ParseDevices("CPU").kind, Kind::kCpu);
  EXPECT_EQ(ParseDevices("auto").kind, Kind::kAuto);
  EXPECT_EQ(ParseDevices("auto").count, 0);
  EXPECT_EQ(ParseDevices(" Auto:4 ").count, 4);
  EXPECT_THAT(ParseDevices("3, 0,GPU-8f3A,mig-41D7").names,
              ElementsAre("3", "0", "GPU-8f3A", "MIG-41D7"));
  for (const char* wrong :
       {"auto:0", "auto:x", "auto:-1", "auto:2000", "0,,1", "0,", ",", "x", "GPU-", "GPU-xyz", "-1",
        "0 1", "1.5", "cpu,0", "2,0,2", "02", "auto:02"}) {
    try {
      (void)ParseDevices(wrong);
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("expected auto, auto:N, cpu, or a list of GPUs"),
                                      HasSubstr(std::string("got \"") + wrong + "\"")));
    }
  }
}

TEST(CardPlanTest, TheCpuWantsNoCards) {
  for (const char* devices : {"", "cpu"}) {
    EXPECT_FALSE(Plan(Request(devices), IdleCards(4)).wish.has_value());
  }
}

TEST(CardPlanTest, Auto) {
  const GpuSnapshot seen = IdleCards(8);
  EXPECT_EQ(Plan(Request("auto"), seen).wish->count, 1u);
  EXPECT_EQ(Plan(Request("auto:4"), seen).wish->count, 4u);
  EXPECT_EQ(Plan(Request("auto:4"), seen).wish->pool.size(), 8u);
  EXPECT_EQ(Plan(Request("auto:4"), seen).workers, 4u);
  GpuRequest with_workers = Request("auto");
  with_workers.workers = 6;
  EXPECT_EQ(Plan(with_workers, seen).wish->count, 6u);
  with_workers.workers_per_gpu = 3;
  EXPECT_EQ(Plan(with_workers, seen).wish->count, 2u);
  EXPECT_EQ(Plan(with_workers, seen).workers, 6u);
  // A list in the environment already is a choice.
  EXPECT_EQ(PlanGpus(Request("auto"), seen, Only({5, 2, 3})).wish->count, 3u);
  EXPECT_THAT(PlanGpus(Request("auto:2"), seen, Only({5, 2, 3})).wish->pool, Names({5, 2, 3}));
}

TEST(CardPlanTest, MoreThanThereAre) {
  const GpuSnapshot seen = IdleCards(2);
  EXPECT_THAT(Refusal(Request("auto:3"), seen, All(seen)),
              HasSubstr("--devices auto:3: expected at most 2, the number of GPUs, got 3"));
  EXPECT_THAT(Refusal(Request("auto:2"), seen, Only({1})),
              HasSubstr("expected at most 1, the number of GPUs visible with "
                        "CUDA_VISIBLE_DEVICES=\"x\", got 2"));
}

TEST(CardPlanTest, ByName) {
  const GpuSnapshot seen = IdleCards(4);
  const GpuPlan plan = Plan(Request("3,GPU-00000001,0"), seen);
  EXPECT_EQ(plan.wish->pool, Names({3, 1, 0}));
  EXPECT_TRUE(plan.wish->named);
  EXPECT_EQ(plan.workers, 3u);
  EXPECT_THAT(Refusal(Request("7"), seen, All(seen)),
              AllOf(HasSubstr("there is no GPU 7"), HasSubstr("0 (GPU-00000000), 1 (")));
  EXPECT_THAT(Refusal(Request("GPU-0000"), seen, All(seen)), HasSubstr("matches 4 GPUs"));
  EXPECT_THAT(Refusal(Request("0,GPU-00000000"), seen, All(seen)),
              HasSubstr("GPU-00000000 names a GPU that is listed already"));
}

TEST(CardPlanTest, ADividedCardIsNamedByItsParts) {
  GpuSnapshot seen = IdleCards(1);
  seen.gpus.push_back({.index = "1:0", .uuid = "MIG-aa"});
  seen.gpus.push_back({.index = "1:1", .uuid = "MIG-bb"});
  EXPECT_THAT(Plan(Request("MIG-b"), seen).wish->pool, ElementsAre("MIG-bb"));
  EXPECT_THAT(Refusal(Request("1"), seen, All(seen)), HasSubstr("name its parts by MIG UUID"));
}

TEST(CardPlanTest, CommandLineBeforeEnvironmentBeforeConfig) {
  const GpuSnapshot seen = IdleCards(4);
  const GpuPlan typed = PlanGpus(Request("3"), seen, Only({0, 1}));
  EXPECT_EQ(typed.wish->pool, Names({3}));
  EXPECT_THAT(typed.reason, HasSubstr("the command line overrides it"));
  const GpuPlan config = PlanGpus(Request("3", /*typed=*/false), seen, Only({0, 1}));
  EXPECT_EQ(config.wish->pool, Names({0, 1}));
  EXPECT_EQ(config.wish->count, 1u);
  EXPECT_FALSE(config.wish->named);
  EXPECT_THAT(config.reason, HasSubstr("overrides the config"));
  const GpuPlan agree = PlanGpus(Request("1", /*typed=*/false), seen, Only({0, 1}));
  EXPECT_EQ(agree.wish->pool, Names({1}));
  EXPECT_TRUE(agree.wish->named);
}

TEST(CardPlanTest, WorkersAndCardsMustFit) {
  const GpuSnapshot seen = IdleCards(4);
  GpuRequest request = Request("0,1");
  request.workers = 3;
  EXPECT_THAT(Refusal(request, seen, All(seen)),
              HasSubstr("2 GPUs with 1 worker each (worker.workers_per_gpu): expected "
                        "cluster.workers 2, got 3"));
  request.workers = 4;
  request.workers_per_gpu = 2;
  EXPECT_EQ(Plan(request, seen).workers, 4u);
  request.devices = ParseDevices("auto");
  request.workers = 5;
  EXPECT_THAT(Refusal(request, seen, All(seen)), HasSubstr("expected cluster.workers 4, got 5"));
}

TEST(CardPlanTest, MemoryOfAllWorkersOfACardMustBeFree) {
  GpuRequest request = Request("auto");
  request.workers_per_gpu = 3;
  request.memory_fraction = 0.25;
  EXPECT_DOUBLE_EQ(Plan(request, IdleCards(2)).wish->free_share, 0.75);
}

TEST(CardPlanTest, NoCards) {
  GpuSnapshot none{.none = "no NVIDIA driver was found here"};
  const GpuPlan plan = Plan(Request("auto:4"), none);
  EXPECT_FALSE(plan.wish.has_value());
  EXPECT_EQ(plan.reason, "--devices auto:4: no NVIDIA driver was found here");
  EXPECT_EQ(PlanGpus(Request("auto"), IdleCards(2), Only({})).reason,
            "--devices auto: CUDA_VISIBLE_DEVICES=\"x\" leaves no GPU");
}

}  // namespace
}  // namespace muster::testing
