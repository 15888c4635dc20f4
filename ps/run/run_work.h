// The work of a run: slices and blocks, their assignment, and poison suspects.
//
// Owner: the run, which counts finished work; the dispatcher assigns the rest.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/graph/graph.h"
#include "proto/config.pb.h"
#include "ps/evaluate/evaluator.h"
#include "ps/step/poison_watch.h"
#include "ps/step/shares.h"
#include "ps/step/step_work.h"

namespace muster {

struct RunWork {
  // `chunks`: number of chunks of a gradient. `seats`: the number of possible ranks.
  RunWork(const config::Config& config, const Graph& graph, size_t chunks, uint32_t seats);

  StepWork slices;  // work of the current step
  Shares shares;
  Evaluator evaluator;
  PoisonWatch poison;
};

}  // namespace muster
