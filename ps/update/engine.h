// What turns gradients into weights: the variables, the threads, and the aggregator that uses both.
//
// Owner: the run. Used in the loop's thread.
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
  ThreadPool pool;  // joined before the memory goes that its threads use
  Aggregator aggregator;
};

}  // namespace muster
