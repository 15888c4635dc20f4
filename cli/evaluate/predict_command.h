// `muster predict`: what a network makes of single samples of a data set.
#pragma once

#include <functional>
#include <string>

#include "cli/data/count_samples.h"
#include "cli/evaluate/evaluation_config.h"

namespace muster {

struct PredictArguments {
  EvaluationSource source;
  std::string samples;        // "0-9,17"
  bool training_set = false;  // instead of the test set
  uint32_t top = 3;           // classes to show of each
  bool json = false;
  std::string worker_program;
  std::function<DataCount(const config::Config&)> count_data;
};

// Has a worker program compute them, by itself, within the blocks of an evaluation and so with its
// bits, and prints them in the order asked for. The source is only read, nothing is written. Throws
// Error. Called from the main thread, while there is no other one.
int RunPredict(const PredictArguments& arguments);

}  // namespace muster
