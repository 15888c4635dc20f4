// What a network says of one sample.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

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

}  // namespace muster
