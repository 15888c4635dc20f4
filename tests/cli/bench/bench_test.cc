// The cost model against closed forms, and the output of `muster bench` for given measurements.
#include <gmock/gmock-matchers.h>

#include "cli/bench/bench_text.h"

namespace muster {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST(CostModel, PassReadsGradientsWeightsAndStateAndWritesTheLastTwo) {
  EXPECT_EQ(UpdateBytes({.bytes = 100, .workers = 2, .states = 1}), 600);  // 2 g, w, m; w', m'
  EXPECT_EQ(UpdateBytes({.bytes = 100, .workers = 8, .states = 2}), 1400);
  EXPECT_EQ(UpdateBytes({.bytes = 100, .workers = 1, .states = 0}), 300);
  EXPECT_EQ(UpdateSeconds({.bytes = 100, .workers = 2, .states = 1}, 1200), 0.5);
}

TEST(CostModel, RoundsOnOneHost) {
  const MachineCosts costs{.local_latency_s = 0.5,
                           .tcp_latency_s = 2,
                           .memory_bytes_per_s = 400,
                           .loopback_bytes_per_s = 100};
  EXPECT_EQ(LocalRound({.bytes = 200, .workers = 2, .states = 1}, costs), 0.5 + 200 * 6 / 400.0);
  EXPECT_EQ(LoopbackRound({.bytes = 200, .workers = 3}, costs), 2 + 2 * 3 * 200 / 100.0);
}

TEST(CostModel, TheServersLinkCarriesAGradientForEachLevelOfRelays) {
  const HostNetwork network{.bits_per_s = 10e9, .hop_s = 1e-3};
  const double link = 10e9 / 8 * 1448 / 1538, memory = 1e12;
  RoundShape shape{.bytes = 400e6, .workers = 4, .states = 1, .chunk_bytes = 4e6};
  EXPECT_NEAR(RelayRound(shape, network, memory), 4e-3 + 2 * 400e6 / link + 5 * 4e6 / link, 1e-9);
  EXPECT_NEAR(RingRound(shape, network, memory), 6 * (1e-3 + 100e6 / link) + 400e6 * 5 / memory,
              1e-9);
  shape.workers = 64;
  EXPECT_NEAR(RelayRound(shape, network, memory), 12e-3 + 6 * 400e6 / link + 17 * 4e6 / link, 1e-9);
  shape.workers = 33;
  EXPECT_NEAR(RelayRound(shape, network, memory), 12e-3 + 6 * 400e6 / link + 17 * 4e6 / link, 1e-9);
  shape.workers = 2;
  EXPECT_NEAR(RelayRound(shape, network, memory), 2e-3 + 400e6 / link + 2 * 4e6 / link, 1e-9);
  // If memory is slower than the link, the pass dominates.
  EXPECT_NEAR(RelayRound(shape, network, 1e9), 2e-3 + 400e6 * 6 / 1e9 + 2 * 4e6 / link, 1e-9);
  // A chunk is at most as large as the model.
  shape.bytes = 1000;
  EXPECT_NEAR(RelayRound(shape, network, memory), 2e-3 + 3 * 1000 / link, 1e-12);
  // One host has no network.
  shape.workers = 1;
  EXPECT_NEAR(RelayRound(shape, network, memory), 1000 * 5 / memory, 1e-12);
}

// A machine with 20 GB/s whose update reaches half of the memory bandwidth.
BenchResult SomeResult() {
  BenchResult result{
      .workers = 2, .server_threads = 2, .optimizer = "MOMENTUM", .instruction_set = "AVX2"};
  const double latency = 30e-6, tcp_latency = 100e-6;
  for (const double bytes : {4096.0, 1e6, 100e6}) {
    const double pass = bytes * 6 / 20e9;
    result.rows.push_back({.bytes = bytes,
                           .update_s = pass,
                           .limit_s = pass / 2,
                           .local_s = latency + pass,
                           .local_p99_s = 2 * pass,
                           .tcp_s = tcp_latency + 4 * bytes / 2e9,
                           .tcp_p99_s = pass});
  }
  result.model = {.name = "some network", .shape = {.bytes = 1e6, .workers = 2}};
  return result;
}

TEST(BenchText, CostsComeFromTheSmallestAndTheLargestSize) {
  const MachineCosts costs = CostsOf(SomeResult());
  EXPECT_NEAR(costs.local_latency_s, 30e-6, 1e-9);
  EXPECT_NEAR(costs.tcp_latency_s, 100e-6, 1e-9);
  EXPECT_NEAR(costs.memory_bytes_per_s, 20e9, 1);
  EXPECT_NEAR(costs.loopback_bytes_per_s, 2e9, 1);
}

TEST(BenchText, SaysWhatARoundTakesAndWhatThatMeansForTheModel) {
  BenchResult result = SomeResult();
  result.model.flops_per_worker = 3.3e9;  // in 20 x 330 us: 500 GFLOP/s
  const std::vector<std::string> lines = BenchLines(result);
  EXPECT_THAT(lines, Contains(HasSubstr("40.0 GB/s")));  // the memory's
  EXPECT_THAT(lines, Contains(HasSubstr("the update reaches 50 % of that")));
  EXPECT_THAT(lines, Contains(HasSubstr("some network, 1.00 MB, 2 workers, MOMENTUM:")));
  EXPECT_THAT(lines, Contains(HasSubstr("A round takes 330 us over shared memory")));
  EXPECT_THAT(lines, Contains(HasSubstr("less than 5 % of any step longer than 6.60 ms")));
  EXPECT_THAT(lines, Contains(HasSubstr("500 GFLOP/s")));
  EXPECT_THAT(lines, Contains(HasSubstr("64 hosts")));
  EXPECT_THAT(lines,
              Contains(::testing::AllOf(HasSubstr("100 Gbit/s"), HasSubstr("one server, relays"))));
}

TEST(BenchText, SaysThatTheMachineWasBusyWhereARoundIsShorterThanItsUpdate) {
  BenchResult result = SomeResult();
  EXPECT_THAT(BenchLines(result), ::testing::Not(Contains(HasSubstr("when it is idle"))));
  result.rows[1].local_s = result.rows[1].update_s * 0.9;
  EXPECT_THAT(BenchLines(result), Contains(HasSubstr("when it is idle")));
}

TEST(BenchText, PredictsTheMiddleFromTheEnds) {
  for (const std::string& line : BenchLines(SomeResult())) {
    if (line.find("1.00 MB  ") == std::string::npos) continue;
    // The measured and the predicted time, both over shared memory and over TCP.
    EXPECT_NE(line.find("330 us"), line.rfind("330 us")) << line;
    EXPECT_NE(line.find("2.10 ms"), line.rfind("2.10 ms")) << line;
    return;
  }
  FAIL() << "no row for 1 MB";
}

}  // namespace
}  // namespace muster
