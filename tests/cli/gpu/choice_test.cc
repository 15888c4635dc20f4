// Which GPUs count as busy, and which of the idle ones are chosen.
#include "cli/gpu/choice.h"

#include <gmock/gmock.h>

#include "cli/gpu/usage.h"
#include "tests/cli/gpu/gpu_fixture.h"

namespace muster::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void Link(GpuSnapshot& seen, size_t a, size_t b, GpuLink link) {
  seen.links[a][b] = seen.links[b][a] = link;
}

TEST(ChoiceTest, WhyACardIsBusy) {
  EXPECT_EQ(WhyBusy(IdleCard(0), 1), "");

  Gpu computes = IdleCard(0);
  computes.processes = {{.pid = ::getpid(), .bytes = 1}};
  EXPECT_THAT(WhyBusy(computes, 0), HasSubstr("pid " + std::to_string(::getpid())));

  Gpu elsewhere = IdleCard(0);
  elsewhere.processes = {{.pid = 1 << 30}};
  EXPECT_THAT(WhyBusy(elsewhere, 0), HasSubstr("process 1073741824 computes on it"));

  // NVML also lists clients of MPS.
  const ForkedProcess server(
      [] { return ::execl("/bin/sleep", "/usr/bin/nvidia-cuda-mps-server", "60", nullptr); });
  Gpu shared = IdleCard(0);
  shared.processes = {{.pid = server.pid()}};
  EXPECT_TRUE(Eventually([&] { return WhyBusy(shared, 0).empty(); }));
  shared.processes.push_back({.pid = ::getpid()});
  EXPECT_THAT(WhyBusy(shared, 0), HasSubstr("pid " + std::to_string(::getpid())));

  Gpu draws = IdleCard(0);
  draws.processes = {{.pid = 1, .bytes = kCardBytes / 4, .computes = false}};
  draws.used_bytes = kCardBytes / 4;
  EXPECT_EQ(WhyBusy(draws, 0), "");

  // In a container NVML reports used memory without its processes.
  Gpu unseen = IdleCard(0);
  unseen.used_bytes = kCardBytes / 2;
  EXPECT_THAT(WhyBusy(unseen, 0), HasSubstr("used by processes that are not visible"));

  Gpu small = IdleCard(0);
  small.free_bytes = kCardBytes * 9 / 10;
  EXPECT_EQ(WhyBusy(small, 0.9), "");
  EXPECT_THAT(WhyBusy(small, 0.95), HasSubstr("is needed"));
  small.free_bytes = kCardBytes * 96 / 100;  // the driver reserves the rest
  EXPECT_EQ(WhyBusy(small, 1), "");

  Gpu hot = IdleCard(0);
  hot.sensors.temperature = 90;
  hot.limits.slowdown_temperature = 90;
  EXPECT_THAT(WhyBusy(hot, 0), HasSubstr("90 degrees"));

  Gpu lost = IdleCard(0);
  lost.trouble = "GPU is lost";
  EXPECT_EQ(WhyBusy(lost, 0), "GPU is lost");
}

TEST(ChoiceTest, TheQuietOneWithTheMostFreeMemory) {
  GpuSnapshot seen = IdleCards(4);
  seen.gpus[0].sensors.utilization = 80;
  seen.gpus[1].free_bytes /= 2;
  seen.gpus[3].processes = {{.pid = 1, .computes = false}};
  EXPECT_THAT(ChooseGpus(seen, {0, 1, 2, 3}, 1), ElementsAre(2));
  EXPECT_THAT(ChooseGpus(seen, {0, 1, 3}, 1), ElementsAre(1));
  EXPECT_EQ(ChoiceReason(seen, {0, 1, 2, 3}, {2}), "idle, the most free memory");
  EXPECT_EQ(ChoiceReason(seen, {0}, {0}), "not used for computing");
}

TEST(ChoiceTest, EqualCardsInTheirOrder) {
  EXPECT_THAT(ChooseGpus(IdleCards(4), {1, 2, 3}, 2), ElementsAre(1, 2));
}

TEST(ChoiceTest, TheClosestGroup) {
  GpuSnapshot seen = IdleCards(4);
  Link(seen, 1, 3, GpuLink::kNvlink);
  Link(seen, 0, 1, GpuLink::kSwitch);
  EXPECT_THAT(ChooseGpus(seen, {0, 1, 2, 3}, 2), ElementsAre(1, 3));
  EXPECT_EQ(ChoiceReason(seen, {0, 1, 2, 3}, {1, 3}), "idle, joined by NVLink");
  EXPECT_THAT(ChooseGpus(seen, {0, 1, 2}, 2), ElementsAre(0, 1));
  EXPECT_EQ(ChoiceReason(seen, {0, 1, 2}, {0, 1}), "idle, behind one PCIe switch");
  // An idle group with a slower link is better than a well-linked one that was busy recently.
  seen.gpus[3].sensors.utilization = 50;
  EXPECT_THAT(ChooseGpus(seen, {0, 1, 2, 3}, 2), ElementsAre(0, 1));
}

// The slowest GPU determines the time of a step.
TEST(ChoiceTest, CardsOfOneModel) {
  GpuSnapshot seen = IdleCards(4);
  seen.gpus[0].name = seen.gpus[2].name = "Fake T4";
  Link(seen, 0, 1, GpuLink::kNvlink);
  EXPECT_THAT(ChooseGpus(seen, {0, 1, 2, 3}, 2), ElementsAre(0, 2));
  EXPECT_THAT(ChooseGpus(seen, {0, 1, 3}, 2), ElementsAre(1, 3));
  EXPECT_THAT(ChooseGpus(seen, {0, 1}, 2), ElementsAre(0, 1));
}

// Too many subsets to try each.
TEST(ChoiceTest, ManyCards) {
  GpuSnapshot seen = IdleCards(40);
  std::vector<size_t> all, wanted;
  for (size_t i = 0; i < 40; ++i) all.push_back(i);
  for (size_t i = 3; i < 40; i += 5) wanted.push_back(i);
  for (const size_t a : wanted) {
    for (const size_t b : wanted) seen.links[a][b] = GpuLink::kNvlink;
  }
  EXPECT_EQ(ChooseGpus(seen, all, wanted.size()), wanted);
}

}  // namespace
}  // namespace muster::testing
