#include "tests/protocol/explorer.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <unordered_map>

namespace muster::testing {
namespace {

thread_local std::string played;

// A known state, as the actions that lead to it.
struct Found {
  uint32_t parent = 0;
  Action action;
  std::vector<Action> next;  // the actions that are possible in it
};

// One action in one state.
struct Step {
  uint32_t from = 0;
  Action action;
  bool changed = false;
  uint64_t hash = 0;
  std::vector<Action> next;
  std::string wrong;
};

class Search {
 public:
  Search(const ModelJob& job, const ExploreOptions& options) : job_(job), options_(options) {}

  Exploration Run();

 private:
  std::vector<Action> PathTo(uint32_t state) const;
  void Take(Step& step) const;
  std::string Judge(ModelWorld& world, const std::vector<Action>& path) const;
  void TakeAll(std::vector<Step>& steps) const;
  void Keep(Step& step);
  std::string FindCircle();

  const ModelJob& job_;
  const ExploreOptions& options_;
  Exploration result_;
  std::vector<Found> found_;
  std::unordered_map<uint64_t, uint32_t> known_;         // by hash
  std::vector<std::pair<uint32_t, uint32_t>> progress_;  // edges between states
};

std::vector<Action> Search::PathTo(uint32_t state) const {
  std::vector<Action> path;
  for (; state != 0; state = found_[state].parent) path.push_back(found_[state].action);
  std::ranges::reverse(path);
  return path;
}

std::string Joined(const std::vector<Action>& path) {
  std::string text;
  for (const Action& action : path) text += (text.empty() ? "" : ",") + TextOf(action);
  return text;
}

void Search::Take(Step& step) const {
  std::vector<Action> path = PathTo(step.from);
  path.push_back(step.action);
  played = Joined(path);
  ModelWorld world(job_);
  for (size_t i = 0; i + 1 < path.size(); ++i) (void)world.Do(path[i]);
  step.changed = world.Do(step.action);
  if (!step.changed) return;
  const std::string text = world.Text();
  step.hash = XXH3_64bits(text.data(), text.size());
  step.next = world.Enabled();
  step.wrong = world.Wrong();
  if (step.wrong.empty() && !known_.contains(step.hash)) step.wrong = Judge(world, path);
  played.clear();
}

// The repeated messages change the world, so the end is checked in a second one.
std::string Search::Judge(ModelWorld& world, const std::vector<Action>& path) const {
  const bool goes_on = std::ranges::any_of(world.Enabled(), &Action::IsProgress);
  const std::string wrong = world.WrongIfRepeated();
  if (!wrong.empty() || goes_on) return wrong;
  ModelWorld again(job_);
  for (const Action& action : path) (void)again.Do(action);
  return again.WrongAtEnd();
}

void Search::TakeAll(std::vector<Step>& steps) const {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i; (i = next++) < steps.size();) Take(steps[i]);
  };
  std::vector<std::jthread> threads;
  for (int i = 1; i < options_.threads; ++i) threads.emplace_back(work);
  work();
}

void Search::Keep(Step& step) {
  ++result_.transitions;
  if (!step.changed) return;
  const auto [known, is_new] = known_.try_emplace(step.hash, static_cast<uint32_t>(found_.size()));
  if (step.action.IsProgress()) progress_.emplace_back(step.from, known->second);
  if (!is_new) return;
  if (!std::ranges::any_of(step.next, &Action::IsProgress)) ++result_.ends;
  found_.push_back({step.from, step.action, std::move(step.next)});
  if (step.wrong.empty() || !result_.wrong.empty()) return;
  result_.wrong = step.wrong;
  result_.path = PathTo(known->second);
}

Exploration Search::Run() {
  found_.push_back({.next = ModelWorld(job_).Enabled()});
  for (size_t begin = 0; begin < found_.size() && result_.wrong.empty(); ++result_.depth) {
    if (found_.size() > options_.most_states) break;
    const size_t end = found_.size();
    constexpr size_t kAtOnce = 4096;  // states
    while (begin < end && result_.wrong.empty()) {
      std::vector<Step> steps;
      for (const size_t until = std::min(end, begin + kAtOnce); begin < until; ++begin) {
        for (const Action& action : found_[begin].next) {
          steps.push_back({static_cast<uint32_t>(begin), action});
        }
        found_[begin].next = {};
      }
      TakeAll(steps);
      for (Step& step : steps) Keep(step);
    }
    result_.states = found_.size();
    result_.complete = begin == found_.size();
    if (options_.progress) options_.progress(result_, found_.size() - begin);
  }
  if (result_.wrong.empty() && result_.complete) result_.wrong = FindCircle();
  return result_;
}

// Without faults every action makes progress, so no state may recur. Checked by topological
// sorting.
std::string Search::FindCircle() {
  std::vector<uint32_t> into(found_.size());
  for (const auto& [from, to] : progress_) ++into[to];
  std::ranges::sort(progress_);
  std::vector<uint32_t> open;
  for (uint32_t state = 0; state < found_.size(); ++state) {
    if (into[state] == 0) open.push_back(state);
  }
  size_t done = 0;
  while (!open.empty()) {
    const uint32_t state = open.back();
    open.pop_back();
    ++done;
    auto edge = std::ranges::lower_bound(progress_, std::pair{state, uint32_t{0}});
    for (; edge != progress_.end() && edge->first == state; ++edge) {
      if (--into[edge->second] == 0) open.push_back(edge->second);
    }
  }
  if (done == found_.size()) return "";
  const auto first = std::ranges::find_if(into, [](uint32_t count) { return count > 0; });
  result_.path = PathTo(static_cast<uint32_t>(first - into.begin()));
  return "this state recurs without a fault, so the run may never end";
}

}  // namespace

const std::string* PlayedNow() { return played.empty() ? nullptr : &played; }

Exploration Explore(const ModelJob& job, const ExploreOptions& options) {
  return Search(job, options).Run();
}

}  // namespace muster::testing
