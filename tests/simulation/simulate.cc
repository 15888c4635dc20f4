// Plays runs in a simulated cluster and checks the guarantees in docs/DESIGN.md. Seeds determine
// the faults and all durations.
#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "common/base/error.h"
#include "common/base/program_options.h"
#include "ps/step/poison_watch.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/many_hosts.h"

namespace muster::testing {
namespace {

struct Arguments {
  uint64_t first = 1, seeds = 1000;
  int threads = 1;
  std::string scenario;
  bool relays = false, log = false, keep_going = false;
  ManyHosts many{.hosts = 0};
  std::string sums = "tree";
};

struct Totals {
  std::mutex mutex;
  uint64_t runs = 0, wrong = 0, blamed = 0;
  int64_t redone = 0;
  double seconds = 0, longest = 0;  // simulated
};

// The work that kills every process that does it, or "" if it does not kill enough of them.
std::string GuiltyIn(const Scenario& scenario) {
  const Deadly& deadly = scenario.deadly;
  if (deadly.times < PoisonWatch::kMostLosses) return "";
  return deadly.slice >= 0
             ? fmt::format("slice {} of step {} ", deadly.slice, deadly.step)
             : fmt::format("block {} of the evaluation of step {} ", deadly.block, deadly.step);
}

// `how`: the command that repeats the run. Returns false for an error.
bool Play(const NamedScenario& one, uint64_t seed, const std::string& how,
          const Arguments& arguments, Totals& totals) {
  Cluster::Log log;
  if (arguments.log) {
    fmt::print("seed {}: {}\n", seed, TextOf(one.scenario));
    log = [](const std::string& line) { fmt::print("{}\n", line); };
  }
  Cluster cluster(one.scenario, seed, std::move(log));
  std::string wrong = cluster.Run();
  if (one.failure != nullptr) {
    const bool fails = wrong.find(one.failure) != std::string::npos;
    wrong = fails ? "" : "the run does not fail as it must: " + wrong;
  }
  const double seconds = cluster.virtual_seconds();
  // Faults that happen to hit one slice three times are blamed on it.
  const std::string guilty = GuiltyIn(one.scenario);
  const bool by_chance = guilty.empty() && one.name == nullptr;
  if (wrong.empty() && !by_chance && guilty.empty() != cluster.blamed().empty()) {
    wrong = guilty.empty() ? "the blamed work killed no worker" : "no work is blamed";
  } else if (wrong.empty() && cluster.blamed().find(guilty) == std::string::npos) {
    wrong = "expected the server to blame " + guilty + ", got: " + cluster.blamed();
  } else if (wrong.empty() && one.within_s && seconds > *one.within_s) {
    wrong = fmt::format("it took {:.1f} s, more than {:g} s", seconds, *one.within_s);
  } else if (wrong.empty() && one.most_redone >= 0 && cluster.redone() > one.most_redone) {
    wrong = fmt::format("{} orders were repeated, expected at most {}", cluster.redone(),
                        one.most_redone);
  } else if (wrong.empty() && seconds < one.after_s) {
    wrong = fmt::format("it took {:.1f} s, less than {:g} s", seconds, one.after_s);
  }
  const std::lock_guard lock(totals.mutex);
  ++totals.runs;
  totals.seconds += seconds;
  totals.longest = std::max(totals.longest, seconds);
  totals.redone += cluster.redone();
  totals.blamed += cluster.blamed().empty() ? 0 : 1;
  if (wrong.empty()) return true;
  ++totals.wrong;
  fmt::print(
      "seed {}: {}\n  {}\n  to repeat it step by step: simulate {}--first {} --seeds 1 --log\n",
      seed, TextOf(one.scenario), wrong, how, seed);
  std::fflush(stdout);
  return false;
}

// Threads take seeds one by one.
void PlaySeeds(const Arguments& arguments, Totals& totals) {
  const uint64_t end = arguments.first + arguments.seeds;
  std::atomic<uint64_t> next = arguments.first;
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<size_t>(arguments.threads));
  for (int i = 0; i < arguments.threads; ++i) {
    threads.emplace_back([&] {
      for (uint64_t seed; (seed = next++) < end;) {
        Scenario scenario = ScenarioOf(seed);
        if (arguments.relays) scenario = Relayed(std::move(scenario), seed);
        const NamedScenario one{nullptr, std::nullopt, std::move(scenario)};
        if (!Play(one, seed, arguments.relays ? "--relays " : "", arguments, totals) &&
            !arguments.keep_going)
          next = end;
      }
    });
  }
}

// Plays the scenarios with this name, or all. The seeds decide how long everything takes.
void PlayScenarios(const Arguments& arguments, Totals& totals) {
  for (const NamedScenario& one : NamedScenarios()) {
    if (arguments.scenario != "all" && arguments.scenario != one.name) continue;
    const std::string how = fmt::format("--scenario \"{}\" ", one.name);
    totals.longest = 0;
    for (uint64_t i = 0; i < arguments.seeds; ++i) {
      if (!Play(one, arguments.first + i, how, arguments, totals) && !arguments.keep_going) break;
    }
    fmt::print("{:5.1f} s at most: {}\n", totals.longest, one.name);
  }
}

int MeasureManyHosts(const Arguments& arguments) {
  ManyHosts many = arguments.many;
  using Sums = ManyHosts::Sums;
  if (arguments.sums != "none" && arguments.sums != "flat" && arguments.sums != "tree") {
    throw Error(ExitCode::kUsage, "--sums {}: expected none, flat or tree", arguments.sums);
  }
  many.sums = arguments.sums == "none"   ? Sums::kNone
              : arguments.sums == "flat" ? Sums::kFlat
                                         : Sums::kTree;
  fmt::print("{:.4g} s per step\n", SecondsPerStep(many));
  return 0;
}

int Run(const Arguments& arguments) {
  if (arguments.many.hosts > 0) return MeasureManyHosts(arguments);
  const auto begin = std::chrono::system_clock::now();
  Totals totals;
  arguments.scenario.empty() ? PlaySeeds(arguments, totals) : PlayScenarios(arguments, totals);
  const std::chrono::duration<double> took = std::chrono::system_clock::now() - begin;
  fmt::print(
      "{} runs, {} errors, {} ended by work that killed three workers; {:.0f} simulated hours, "
      "{} repeated orders, in {:.1f} s\n",
      totals.runs, totals.wrong, totals.blamed, totals.seconds / 3600, totals.redone, took.count());
  if (totals.runs == 0)
    throw Error(ExitCode::kUsage, "--scenario {}: unknown scenario", arguments.scenario);
  return totals.wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace muster::testing

int main(int argc, char** argv) {
  using namespace muster;
  testing::Arguments arguments;
  ProgramOptions program(
      "Plays runs of a job in a simulated cluster with faults. Checks that the result has "
      "the bits of the undisturbed run and that all processes end.");
  program.Add("--first", arguments.first, "the first seed").ShowDefault();
  program.Add("--seeds", arguments.seeds, "how many").ShowDefault();
  program.Add("--threads", arguments.threads).ShowDefault().InRange(1, 256);
  program.Add("--scenario", arguments.scenario,
              "a scenario in tests/simulation/scenario.cc, or all, with every seed");
  program.AddFlag("--relays", arguments.relays, "through relays, with faults of them");
  program.AddFlag("--log", arguments.log, "print all events");
  program
      .Add("--hosts", arguments.many.hosts,
           "instead: print how long a step takes on this many hosts without faults")
      .InRange(1, 1024);
  program.Add("--workers", arguments.many.workers, "of each of these hosts")
      .ShowDefault()
      .InRange(1, 64);
  program.Add("--gbits", arguments.many.gbits, "the speed of their network cards")
      .ShowDefault()
      .InRange(0.001, 1000);
  program.Add("--megabytes", arguments.many.megabytes, "of the model")
      .ShowDefault()
      .InRange(0.001, 1e6);
  program.Add("--sums", arguments.sums, "of gradients: none, flat (one per host) or tree")
      .ShowDefault();
  program.AddFlag("--keep-going", arguments.keep_going, "after a seed with an error");
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  spdlog::set_level(spdlog::level::off);  // failures are reported at the end
  try {
    return testing::Run(arguments);
  } catch (const Error& error) {
    fmt::print(stderr, "simulate: error: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
