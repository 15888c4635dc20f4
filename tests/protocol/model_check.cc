// Explores all states of a job with few workers, slices, chunks and steps, with faults at any
// point, and checks the guarantees in each (docs/MODEL.md).
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/program_options.h"
#include "tests/protocol/explorer.h"

namespace muster::testing {
namespace {

struct Arguments {
  Bounds bounds;
  ExploreOptions explore;
  std::string replay, expect;
  bool verbose = false;
};

// Prints the state at an abort, so that it can be replayed.
void TellOfAbort(int) {
  constexpr const char* kText = "\naborted; the actions: --replay ";
  (void)!::write(STDOUT_FILENO, kText, std::strlen(kText));
  if (const std::string* played = PlayedNow()) {
    (void)!::write(STDOUT_FILENO, played->data(), played->size());
  }
  (void)!::write(STDOUT_FILENO, "\n", 1);
  std::signal(SIGABRT, SIG_DFL);
  std::raise(SIGABRT);
}

// Replays actions and returns the error, if any. Prints the events if `verbose`.
std::string Replay(const ModelJob& job, const std::vector<Action>& path, bool verbose) {
  int number = 0;
  ModelWorld world(job, [](const std::string& line) { fmt::print("      {}\n", line); });
  for (const Action& action : path) {
    fmt::print("{:3}   [{}]\n", ++number, TextOf(action));
    std::fflush(stdout);
    (void)world.Do(action);
    if (verbose) fmt::print("{}\n", world.Text());
    if (std::string wrong = world.Wrong(); !wrong.empty()) return wrong;
  }
  const auto enabled = world.Enabled();
  fmt::print("      possible actions:");
  for (const Action& action : enabled) fmt::print(" {}", TextOf(action));
  fmt::print("\n");
  return "";
}

int Run(const Arguments& arguments) {
  const ModelJob job(arguments.bounds);
  if (!arguments.replay.empty()) {
    const std::string wrong = Replay(job, ParseActions(arguments.replay), arguments.verbose);
    fmt::print("{}\n", wrong.empty() ? "no error" : "ERROR: " + wrong);
    return wrong.empty() ? 0 : 1;
  }
  const auto begin = std::chrono::steady_clock::now();
  const Exploration found = Explore(job, arguments.explore);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  if (!found.wrong.empty()) {
    fmt::print("The shortest path to the error has {} actions:\n", found.path.size());
    (void)Replay(job, found.path, false);
    std::string replay;
    for (const Action& action : found.path) replay += (replay.empty() ? "" : ",") + TextOf(action);
    fmt::print("ERROR: {}\nTo repeat it: --replay {}\n", found.wrong, replay);
  }
  fmt::print("{} states, {} transitions, {} ends, depth {}, {:.1f} s{}\n", found.states,
             found.transitions, found.ends, found.depth, took.count(),
             found.complete ? "" : " (not all)");
  if (arguments.expect.empty()) return found.wrong.empty() ? 0 : 1;
  if (found.wrong.find(arguments.expect) != std::string::npos) return 0;
  fmt::print("expected to find \"{}\"\n", arguments.expect);
  return 1;
}

}  // namespace
}  // namespace muster::testing

int main(int argc, char** argv) {
  using namespace muster;
  testing::Arguments arguments;
  testing::Bounds& bounds = arguments.bounds;
  ProgramOptions program(
      "Explores all states of a small job with faults, and checks the protocol's guarantees in "
      "each (docs/MODEL.md).");
  program.Add("--workers", bounds.workers).ShowDefault().InRange(1, 4);
  program.Add("--slices", bounds.slices).ShowDefault().InRange(1, 6);
  program.Add("--steps", bounds.steps).ShowDefault().InRange(1, 8);
  program.Add("--crashes", bounds.crashes, "workers that end").ShowDefault();
  program.Add("--silences", bounds.silences, "workers that the server drops while they continue")
      .ShowDefault();
  program.Add("--replacements", bounds.replacements, "of lost workers").ShowDefault();
  program.Add("--newcomers", bounds.newcomers, "workers that join on their own").ShowDefault();
  program.Add("--stalls", bounds.stalls, "stalls that make all unfinished workers slow")
      .ShowDefault();
  program.Add("--leaves", bounds.leaves, "workers that request to leave").ShowDefault();
  program
      .Add("--restarts", bounds.restarts,
           "servers that end with all workers; new ones resume from the newest or the previous "
           "checkpoint, or start from the beginning")
      .ShowDefault();
  program
      .Add("--in-flight", bounds.in_flight, "undelivered messages of a worker with an unread order")
      .ShowDefault();
  program.AddFlag("--ahead", bounds.ahead, "apply --in-flight to all workers");
  program.AddFlag("--evaluate", bounds.evaluates, "W(v) is evaluated after each step");
  program.AddFlag("--split", bounds.splits,
                  "--evaluate uses a validation set; the test set is evaluated at the end");
  program.AddFlag("--two-phases", bounds.two_phases, "as with optimizer.clip_norm");
  program.AddFlag("--momentum", bounds.momentum, "the optimizer has a state");
  program.AddFlag("--average", bounds.average, "a moving average, which --evaluate evaluates");
  program.AddFlag("--long-steps", bounds.long_steps,
                  "steps take more than a second: from the third one on slices are pushed one by "
                  "one");
  program.AddFlag("--remote", bounds.remote, "workers do not share memory with the server");
  program.Add("--bad-loss", bounds.bad_loss, "skip this step, for a loss that is not finite");
  program.Add("--bad-gradient", bounds.bad_gradient,
              "skip this step, for a gradient that is not finite");
  program.Add("--threads", arguments.explore.threads).ShowDefault().InRange(1, 256);
  program.Add("--most-states", arguments.explore.most_states, "stop after this many");
  program.Add("--replay", arguments.replay, "replay these actions, as printed for a failure");
  program.Add("--expect", arguments.expect, "succeed only if the error contains this text");
  program.AddFlag("--verbose", arguments.verbose, "print states and progress");
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  SetLogLevel(LogLevel::kError);
  std::signal(SIGABRT, testing::TellOfAbort);
  if (arguments.verbose) {
    arguments.explore.progress = [](const testing::Exploration& so_far, size_t waiting) {
      fmt::print(stderr, "depth {}: {} states, {} transitions, {} pending\n", so_far.depth,
                 so_far.states, so_far.transitions, waiting);
    };
  }
  try {
    return testing::Run(arguments);
  } catch (const Error& error) {
    fmt::print(stderr, "model_check: error: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
