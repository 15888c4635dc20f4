// Goes through all states of the model, those first that are reached in the fewest actions: each is
// reached by playing its actions from the beginning, since a server cannot be copied. States that
// go on alike are one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/protocol/model_world.h"

namespace muster::testing {

struct Exploration {
  size_t states = 0, transitions = 0, ends = 0, depth = 0;
  bool complete = false;     // there are no other states
  std::string wrong;         // with the first state that is, or ""
  std::vector<Action> path;  // the shortest one to it
};

struct ExploreOptions {
  int threads = 1;
  size_t most_states = SIZE_MAX;
  // After each depth.
  std::function<void(const Exploration& so_far, size_t waiting)> progress;
};

Exploration Explore(const ModelJob& job, const ExploreOptions& options);

// What this thread plays at the moment, for whoever tells of an abort; null: nothing.
const std::string* PlayedNow();

}  // namespace muster::testing
