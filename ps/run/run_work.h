// The work of a run: slices and blocks, who has them, and which of them end workers.
//
// Owner: the run, which counts what has been done; the dispatcher gives out what has not.
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
  // `chunks` of a gradient; `seats`: ranks are below.
  RunWork(const config::Config& config, const Graph& graph, size_t chunks, uint32_t seats);

  StepWork slices;  // of the step under way
  Shares shares;
  Evaluator evaluator;
  PoisonWatch poison;
};

}  // namespace muster
