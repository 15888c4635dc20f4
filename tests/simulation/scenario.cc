#include "tests/simulation/scenario.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

namespace muster::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Kind = ClusterFault::Kind;

// Two workers and four slices in shared memory: the basis of most scenarios.
Scenario Small(Duration slice_time, std::vector<ClusterFault> faults) {
  Scenario scenario;
  scenario.bounds.workers = 2;
  scenario.bounds.slices = 4;
  scenario.bounds.steps = 12;
  scenario.bounds.newcomers = 2;
  scenario.bounds.evaluates = true;
  scenario.bounds.momentum = true;
  scenario.slice_time = slice_time;
  scenario.shares_memory = {true, true};
  scenario.faults = std::move(faults);
  return scenario;
}

Scenario Remote(Scenario scenario) {
  scenario.shares_memory.assign(scenario.shares_memory.size(), false);
  return scenario;
}

Scenario WithoutReplacements(Scenario scenario) {
  scenario.replaces = false;
  return scenario;
}

Scenario WithDeadly(Scenario scenario, const Deadly& deadly) {
  scenario.deadly = deadly;
  return scenario;
}

Scenario WithWorkers(Scenario scenario, uint32_t workers, uint32_t slices) {
  scenario.bounds.workers = workers;
  scenario.bounds.slices = slices;
  scenario.shares_memory.assign(workers, scenario.shares_memory.front());
  return scenario;
}

// Three workers that nobody replaces.
Scenario Continues(Scenario scenario, uint32_t min_workers) {
  scenario = WithoutReplacements(WithWorkers(std::move(scenario), 3, 6));
  scenario.on_lost_worker = config::Cluster::CONTINUE;
  scenario.min_workers = min_workers;
  return scenario;
}

Scenario WithAverage(Scenario scenario, int64_t steps) {
  scenario.bounds.average = true;
  scenario.bounds.steps = steps;
  return scenario;
}

}  // namespace

const char* NameOf(ClusterFault::Kind kind) {
  switch (kind) {
    case ClusterFault::Kind::kKill:
      return "kill worker";
    case ClusterFault::Kind::kLoseHost:
      return "lose the host of worker";
    case ClusterFault::Kind::kSuspend:
      return "suspend worker";
    case ClusterFault::Kind::kSlowDown:
      return "slow down worker";
    case ClusterFault::Kind::kPartition:
      return "cut off worker";
    case ClusterFault::Kind::kLeave:
      return "leave: worker";
    case ClusterFault::Kind::kJoin:
      return "join";
    case ClusterFault::Kind::kKillServer:
      return "kill the server";
    case ClusterFault::Kind::kSuspendServer:
      return "suspend the server";
    case ClusterFault::Kind::kKillAll:
      return "kill all workers";
    case ClusterFault::Kind::kSlowDownAll:
      return "slow down all workers";
    case ClusterFault::Kind::kSlowWire:
      return "slow down a wire; not of";
    case ClusterFault::Kind::kKillRelay:
      return "kill a relay";
    case ClusterFault::Kind::kSuspendRelay:
      return "suspend a relay";
  }
  return "";
}

Scenario ScenarioOf(uint64_t seed) {
  Chance chance(seed);
  Scenario scenario;
  Bounds& bounds = scenario.bounds;
  bounds.workers = static_cast<uint32_t>(chance.Between(3, 5));
  bounds.slices = static_cast<uint32_t>(chance.Between(bounds.workers, 8));
  bounds.steps = 20;
  bounds.newcomers = 2;
  bounds.evaluates = !chance.OneIn(4);
  bounds.splits = bounds.evaluates && chance.OneIn(3);
  bounds.two_phases = chance.OneIn(4);
  bounds.momentum = chance.OneIn(2);
  bounds.average = chance.OneIn(3);
  if (chance.OneIn(6)) bounds.bad_loss = chance.Between(0, bounds.steps - 1);
  if (chance.OneIn(6)) bounds.bad_gradient = chance.Between(0, bounds.steps - 1);
  // Slices are pushed one by one if steps take longer than a second.
  const bool is_long = chance.OneIn(3);
  scenario.slice_time = is_long ? chance.Between(milliseconds(400), milliseconds(1500))
                                : chance.Between(milliseconds(5), milliseconds(200));
  const uint64_t memory = chance.Below(3);  // all share it, none does, some do
  for (uint32_t rank = 0; rank < bounds.workers; ++rank) {
    scenario.shares_memory.push_back(memory == 0 || (memory == 2 && chance.OneIn(2)));
  }
  const Duration whole = bounds.steps * 2 * scenario.slice_time *
                         static_cast<int64_t>(bounds.slices / bounds.workers + 1);
  for (int i = 0; i < 6; ++i) {
    ClusterFault fault;
    constexpr ClusterFault::Kind kKinds[] = {
        ClusterFault::Kind::kKill,       ClusterFault::Kind::kKill,
        ClusterFault::Kind::kKill,       ClusterFault::Kind::kSuspend,
        ClusterFault::Kind::kSuspend,    ClusterFault::Kind::kSuspend,
        ClusterFault::Kind::kSlowDown,   ClusterFault::Kind::kPartition,
        ClusterFault::Kind::kPartition,  ClusterFault::Kind::kLoseHost,
        ClusterFault::Kind::kLeave,      ClusterFault::Kind::kJoin,
        ClusterFault::Kind::kKillServer, ClusterFault::Kind::kSuspendServer,
        ClusterFault::Kind::kKillAll,    ClusterFault::Kind::kSlowDownAll};
    fault.kind = kKinds[chance.Below(std::size(kKinds))];
    fault.at = chance.Between(Duration(0), whole);
    fault.worker = static_cast<uint32_t>(chance.Below(8));
    // Most are short, and some longer than any deadline.
    fault.lasts = chance.OneIn(4)
                      ? chance.Between(seconds(10), seconds(90))
                      : chance.Between(Duration(0), 8 * scenario.slice_time + seconds(3));
    if (fault.kind == ClusterFault::Kind::kSuspendServer) {
      fault.lasts = std::min<Duration>(fault.lasts, seconds(15));
    }
    fault.factor = chance.Between(2, 8);
    scenario.faults.push_back(fault);
  }
  return scenario;
}

Scenario Relayed(Scenario scenario, uint64_t seed) {
  Chance chance(seed ^ 0x5ca1ab1e);
  const int64_t hosts = chance.Between(1, 3);
  const auto workers = static_cast<int64_t>(scenario.shares_memory.size());
  const bool some_direct = chance.OneIn(3);
  for (int64_t rank = 0; rank < workers; ++rank) {
    scenario.relays.push_back(
        some_direct && chance.OneIn(3) ? -1 : static_cast<int>(rank * hosts / workers));
  }
  for (int64_t rank = 0; rank < workers; ++rank) {
    if (scenario.relays[rank] >= 0) scenario.shares_memory[rank] = true;  // with its relay
  }
  if (chance.OneIn(2)) scenario.via = {-1, 0, 0};
  const Duration whole = scenario.bounds.steps * 2 * scenario.slice_time *
                         static_cast<int64_t>(scenario.bounds.slices / scenario.bounds.workers + 1);
  for (int64_t faults = chance.Between(0, 2); faults > 0; --faults) {
    ClusterFault fault;
    fault.kind = chance.OneIn(2) ? Kind::kKillRelay : Kind::kSuspendRelay;
    fault.at = chance.Between(Duration(0), whole);
    fault.worker = static_cast<uint32_t>(chance.Below(8));
    fault.lasts = chance.OneIn(4) ? chance.Between(seconds(10), seconds(90))
                                  : chance.Between(Duration(0), seconds(5));
    scenario.faults.push_back(fault);
  }
  return scenario;
}

std::string TextOf(const Scenario& scenario) {
  const Bounds& bounds = scenario.bounds;
  std::string text = fmt::format(
      "{} workers, {} slices, {} steps, {} ms a slice{}{}{}{}{}", bounds.workers, bounds.slices,
      bounds.steps, std::chrono::duration_cast<milliseconds>(scenario.slice_time).count(),
      bounds.evaluates ? ", evaluations" : "", bounds.splits ? " of two sets" : "",
      bounds.two_phases ? ", two phases" : "", bounds.momentum ? ", momentum" : "",
      bounds.average ? ", average" : "");
  if (bounds.bad_loss >= 0) text += fmt::format(", bad loss in step {}", bounds.bad_loss);
  if (bounds.bad_gradient >= 0) {
    text += fmt::format(", bad gradient in step {}", bounds.bad_gradient);
  }
  text += "; memory";
  for (const bool shares : scenario.shares_memory) text += shares ? " shared" : " remote";
  if (!scenario.relays.empty()) text += scenario.via.empty() ? "; relays" : "; chained relays";
  for (const int host : scenario.relays) text += fmt::format(" {}", host);
  return text;
}

std::vector<NamedScenario> NamedScenarios() {
  constexpr milliseconds kShort{50}, kLong{700};
  std::vector<NamedScenario> all;
  const auto add = [&](const char* name, double within_s, Scenario scenario) {
    all.push_back({name, within_s, std::move(scenario)});
  };
  // Closed orders occupied all gradient buffers, so the last worker had none for the missing
  // slices.
  add("a worker returns late, and then the other one dies", 75,
      WithoutReplacements(Small(
          kLong, {{Kind::kSuspend, seconds(6), 1, seconds(5)}, {Kind::kKill, seconds(12), 0}})));
  // It seemed idle, got the same slices again, and was slow again, forever.
  add("a worker is suspended for longer than any limit", 12,
      Small(kShort, {{Kind::kSuspend, seconds(1), 0, seconds(15)}}));
  add("a worker is suspended for longer than its silence is forgiven", 12,
      Small(kShort, {{Kind::kSuspend, seconds(1), 0, seconds(40)}}));
  // Two workers cancelled each other's work forever.
  add("all become eight times slower", 18,
      Small(kShort, {{Kind::kSlowDownAll, seconds(1), 0, {}, 8}}));
  add("all become eight times slower in long steps", 250,
      Small(kLong, {{Kind::kSlowDownAll, seconds(8), 0, {}, 8}}));
  // After a host failure or the OOM killer, it seems that a single slice ended them all.
  add("all workers are killed together", 7,
      WithWorkers(Small(kShort, {{Kind::kKillAll, seconds(1)}}), 5, 8));
  add("all workers are killed together, twice", 9,
      WithWorkers(Small(kShort, {{Kind::kKillAll, seconds(1)}, {Kind::kKillAll, seconds(4)}}), 4,
                  8));
  add("survivors wait for the next weights when one dies", 33,
      WithWorkers(
          Small(kLong, {{Kind::kSlowDown, seconds(2), 0, {}, 4}, {Kind::kKill, seconds(9), 0}}), 3,
          3));
  // A child that keeps the socket open hides the end of its parent.
  add("a host disappears without a word", 9, Small(kShort, {{Kind::kLoseHost, seconds(1), 0}}));
  add("a remote host disappears without a word", 10,
      Remote(Small(kShort, {{Kind::kLoseHost, seconds(1), 0}})));
  for (const bool remote : {false, true}) {
    const Scenario lost = WithWorkers(Small(kLong, {{Kind::kLoseHost, seconds(5), 1}}), 3, 6);
    add(remote ? "a remote host comes back before its silence is noticed"
               : "a host comes back before its silence is noticed",
        65, remote ? Remote(lost) : lost);
  }
  add("a worker is cut off and comes back", 13,
      Remote(Small(kShort, {{Kind::kPartition, seconds(1), 0, seconds(12)}})));
  add("a worker is cut off for longer than its silence is forgiven", 13,
      Remote(Small(kShort, {{Kind::kPartition, seconds(1), 0, seconds(60)}})));
  add("the server is suspended", 21,
      Small(kShort, {{Kind::kSuspendServer, seconds(1), 0, seconds(15)}}));
  add("server and workers are suspended together", 33.5,
      Small(kShort, {{Kind::kSuspendServer, seconds(1), 0, seconds(30)},
                     {Kind::kSuspend, seconds(1), 0, seconds(30)},
                     {Kind::kSuspend, seconds(1), 1, seconds(30)}}));
  add("the server is killed in the middle of a step", 7,
      Small(kShort, {{Kind::kKillServer, seconds(1)}}));
  add("the server is killed twice", 8,
      Small(kShort, {{Kind::kKillServer, milliseconds(800)}, {Kind::kKillServer, seconds(6)}}));
  add("workers come and go", 115,
      WithWorkers(Small(kLong, {{Kind::kJoin, seconds(2)},
                                {Kind::kLeave, seconds(5), 0},
                                {Kind::kJoin, seconds(6)},
                                {Kind::kLeave, seconds(8), 1},
                                {Kind::kLeave, seconds(14), 0}}),
                  2, 8));
  add("a worker that wants to leave is late", 78,
      Small(kLong, {{Kind::kLeave, seconds(5), 1}, {Kind::kSuspend, seconds(5), 1, seconds(6)}}));
  add("nobody replaces the first, and then the second, of three workers", 95,
      WithoutReplacements(WithWorkers(
          Small(kLong, {{Kind::kKill, seconds(5), 0}, {Kind::kKill, seconds(9), 1}}), 3, 6)));
  add("a newcomer helps in a long step", 45,
      WithoutReplacements(Small(kLong, {{Kind::kKill, seconds(6), 1}, {Kind::kJoin, seconds(6)}})));
  Scenario alone = WithWorkers(
      Small(kShort, {{Kind::kSuspend, seconds(1), 0, seconds(15)}, {Kind::kJoin, seconds(3)}}), 1,
      4);
  alone.bounds.evaluates = false;  // the first block of an evaluation has no usual time
  add("a newcomer takes the place of a late worker", 12, alone);
  Scenario waits = WithoutReplacements(
      WithWorkers(Small(kShort, {{Kind::kKill, seconds(1), 0}, {Kind::kJoin, seconds(15)}}), 3, 6));
  waits.min_workers = 3;
  add("too few workers wait for another one", 20, waits);
  all.back().after_s = 15;
  // Two slices for three workers: rank 0 has none. It is not waited for, so versions of weights
  // queue up.
  const std::vector<ClusterFault> behind{{Kind::kJoin, milliseconds(500)},
                                         {Kind::kSlowWire, seconds(1), 0, {}, 60}};
  const auto few_slices = [&](const std::vector<ClusterFault>& faults) {
    return WithAverage(WithWorkers(Remote(Small(kShort, faults)), 2, 2), 40);
  };
  add("a worker without slices is behind on a slow wire", 12, few_slices(behind));
  std::vector<ClusterFault> helps = behind;
  helps.push_back({Kind::kKill, seconds(4), 1});
  add("a worker that is behind on a slow wire has to help", 45,
      WithoutReplacements(few_slices(helps)));
  // No other worker is idle: only its silence tells that it is lost.
  add("the host of the only worker disappears without a word", 32,
      WithWorkers(Small(kShort, {{Kind::kLoseHost, seconds(1), 0}}), 1, 4));
  add("the server is killed during the evaluation of an average", 8,
      WithAverage(Small(kShort, {{Kind::kKillServer, seconds(1)}}), 12));
  add("all workers are killed during the evaluation of an average", 8,
      WithAverage(Small(kShort, {{Kind::kKillAll, seconds(1)}}), 12));
  add("CONTINUE: nobody waits for a worker that was lost before the start", 8,
      Continues(Small(kShort, {{Kind::kKill, milliseconds(200), 0}}), 2));
  Scenario incomplete = Continues(Small(kShort, {{Kind::kJoin, seconds(204)}}), 2);
  incomplete.bounds.steps = 30;
  incomplete.absent = 1;
  add("CONTINUE: a worker comes after the deadline of the start", 208, incomplete);
  all.back().after_s = 200;
  incomplete.absent = 2;
  add("CONTINUE: too few workers come before the deadline of the start", 201, incomplete);
  all.back().failure = "2 of 3 workers did not join within 200 s";
  incomplete.absent = 1;
  incomplete.on_lost_worker = config::Cluster::REPLACE;
  add("a worker does not come before the deadline of the start", 201, incomplete);
  all.back().failure = "1 of 3 workers did not join within 200 s";
  // Four workers on two hosts.
  const auto relayed = [&](Duration slice_time, std::vector<ClusterFault> faults, bool chained) {
    Scenario scenario = WithWorkers(Small(slice_time, std::move(faults)), 4, 8);
    scenario.relays = {0, 0, 1, 1};
    if (chained) scenario.via = {-1, 0};
    return scenario;
  };
  add("relays without faults", 4.5, relayed(kShort, {}, true));
  add("a relay is killed", 5, relayed(kShort, {{Kind::kKillRelay, seconds(1), 0}}, false));
  add("a relay is killed, and with it another one", 8,
      relayed(kShort, {{Kind::kKillRelay, seconds(1), 0}}, true));
  add("a worker behind a relay is killed", 5,
      WithoutReplacements(relayed(kShort, {{Kind::kKill, seconds(1), 3}}, true)));
  add("a worker behind a relay is suspended", 10,
      relayed(kShort, {{Kind::kSuspend, seconds(1), 3, seconds(15)}}, true));
  add("a worker behind a relay is suspended in long steps", 45,
      relayed(kLong, {{Kind::kSuspend, seconds(5), 3, seconds(6)}}, true));
  // Eight hosts, of which the first has no relay: its workers wait while those behind it are slow.
  Scenario chain =
      WithWorkers(Small(kShort, {{Kind::kSuspend, seconds(1), 7, seconds(15)}}), 16, 16);
  chain.relays = {-1, -1, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6};
  chain.via = {-1, -1, 1, -1, 3, 3, 5};
  add("a worker behind three relays is suspended", 30, chain);
  all.back().most_redone = 2;
  add("a relay is suspended", 13,
      relayed(kShort, {{Kind::kSuspendRelay, seconds(1), 1, seconds(15)}}, true));
  add("a relay is suspended for longer than its silence is forgiven", 50,
      relayed(kShort, {{Kind::kSuspendRelay, seconds(1), 0, seconds(40)}}, true));
  add("the server behind relays is killed", 8,
      relayed(kShort, {{Kind::kKillServer, seconds(1)}}, true));
  add("a slice ends two workers", 6,
      WithDeadly(Small(kShort, {}), {.step = 5, .slice = 2, .times = 2}));
  add("a slice ends whoever computes it", 5,
      WithDeadly(Small(kShort, {}), {.step = 5, .slice = 2, .times = 100}));
  add("a slice ends whoever computes it in long steps", 24,
      WithDeadly(WithWorkers(Small(kLong, {}), 3, 6), {.step = 5, .slice = 3, .times = 100}));
  add("a block ends two workers", 6,
      WithDeadly(Small(kShort, {}), {.step = 5, .block = 1, .times = 2}));
  Scenario sets = WithDeadly(Small(kShort, {}), {.step = 12, .block = 1, .times = 2});
  sets.bounds.splits = true;
  add("a block of each set ends two workers", 14, sets);
  add("a block ends whoever evaluates it", 6,
      WithDeadly(Small(kShort, {}), {.step = 5, .block = 1, .times = 100}));
  // Each worker was reset, so it held nothing when it was lost.
  for (const uint32_t workers : {2, 4}) {
    const Scenario many = WithWorkers(Small(kShort, {}), workers, 8);
    add(workers == 2 ? "two workers: a block hangs whoever evaluates it"
                     : "four workers: a block hangs whoever evaluates it",
        170, WithDeadly(many, {.step = 5, .block = 1, .times = 100, .hangs = true}));
    add(workers == 2 ? "two workers: a slice hangs whoever computes it"
                     : "four workers: a slice hangs whoever computes it",
        170, WithDeadly(many, {.step = 5, .slice = 2, .times = 100, .hangs = true}));
  }
  add("a block hangs two workers", 90,
      WithDeadly(Small(kShort, {}), {.step = 5, .block = 1, .times = 2, .hangs = true}));
  add("a slice hangs one worker", 12,
      WithDeadly(Small(kShort, {}), {.step = 5, .slice = 2, .times = 1, .hangs = true}));
  return all;
}

}  // namespace muster::testing
