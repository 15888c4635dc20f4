// The parts of a run: its position, weights, work and records.
//
// Owner: the run. Used on the loop thread.
#pragma once

#include "common/graph/graph.h"
#include "proto/config.pb.h"
#include "ps/evaluate/decisions.h"
#include "ps/members/membership.h"
#include "ps/record/recorder.h"
#include "ps/run/convolution_choices.h"
#include "ps/run/first_failure.h"
#include "ps/run/nonfinite_policy.h"
#include "ps/run/run_keeper.h"
#include "ps/run/run_position.h"
#include "ps/run/run_work.h"
#include "ps/run/shared_values.h"
#include "ps/run/weights_feed.h"
#include "ps/update/engine.h"

namespace muster {

struct RunParts {
  // All must outlive this object. `config` is resolved (slices and threads are set). `restored`:
  // the variables will be read from a checkpoint. `describe`: see Checkpoints::Describe.
  RunParts(const config::Config& config, const Graph& graph, Membership& members,
           Recorder& recorder, FirstFailure& failure, bool restored,
           Checkpoints::Describe describe);

  // Whether nothing has been updated since W(step) was completed.
  bool AtBoundary() const;

  const config::Config& config;
  const Graph& graph;
  const Roster& roster;
  RunPosition state;
  Engine engine;
  WeightsFeed feed;
  RunKeeper keeper;
  RunWork work;
  Decisions decisions;
  NonfinitePolicy nonfinite;
  ConvolutionChoices convolutions;
  SharedValues values;
};

}  // namespace muster
