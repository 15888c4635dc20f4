// `muster predict`: what a network makes of single samples of a data set.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cli/data/count_samples.h"
#include "cli/evaluate/evaluation_config.h"

namespace muster {

struct Candidate {
  int64_t number = 0;  // of the class
  double probability = 0;
};

struct Prediction {
  int64_t sample = 0, label = 0;
  bool right = false;          // as an evaluation counts: no other class is as likely
  std::vector<Candidate> top;  // the most likely first; of equals the one of the lower number
};

// `outputs`: what the network's loss reads, finite. Probabilities are their softmax, in double
// precision, or, with `are_probabilities`, they themselves.
Prediction PredictionOf(int64_t sample, int64_t label, std::span<const float> outputs,
                        bool are_probabilities, size_t top);

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
