// Explores all states of the model, breadth first. A server cannot be copied, so each state is
// reached by replaying its actions from the start. States with equal futures are merged.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/protocol/model_world.h"

namespace muster::testing {

struct Exploration {
  size_t states = 0, transitions = 0, ends = 0, depth = 0;
  bool complete = false;     // all states were explored
  std::string wrong;         // the error in the first faulty state, or ""
  std::vector<Action> path;  // the shortest path to it
};

struct ExploreOptions {
  int threads = 1;
  size_t most_states = SIZE_MAX;
  // Called after each depth.
  std::function<void(const Exploration& so_far, size_t waiting)> progress;
};

Exploration Explore(const ModelJob& job, const ExploreOptions& options);

// The actions that this thread is replaying, for messages about an abort. Null if there are none.
const std::string* PlayedNow();

}  // namespace muster::testing
