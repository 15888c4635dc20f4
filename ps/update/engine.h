// The variables, the thread pool and the aggregator, which turn gradients into weights.
//
// Owner: the run. Used on the loop thread.
#pragma once

#include "common/graph/graph.h"
#include "proto/config.pb.h"
#include "ps/update/aggregator.h"
#include "ps/update/thread_pool.h"
#include "ps/update/variables.h"

namespace muster {

struct Engine {
  // `config` is resolved. `restored`: the variables will be read from a checkpoint.
  Engine(const config::Config& config, const Graph& graph, bool restored,
         Aggregator::Publish publish);

  const std::vector<Chunk>& chunks() const { return aggregator.chunks(); }

  Variables variables;
  ThreadPool pool;  // joined before the memory that its threads use is freed
  Aggregator aggregator;
};

}  // namespace muster
