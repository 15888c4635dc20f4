// `muster predict`: what a network makes of image files, or of single samples of a data set.
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

// How the outputs of a network become probabilities: by a softmax, each by a sigmoid, or as they
// are.
enum class ProbabilitiesBy { kSoftmax, kSigmoid, kNothing };
// The most likely classes first; of equals the one of the lower number. `outputs`: what the
// network's loss reads, finite, one for each class. Computed in double precision.
std::vector<Candidate> MostLikely(std::span<const float> outputs, ProbabilitiesBy by, size_t count);
// As an evaluation counts: no other class is as likely.
bool IsRight(std::span<const float> outputs, int64_t label);

struct PredictArguments {
  EvaluationSource source;
  std::vector<std::string> images;  // files and folders; or else:
  std::string samples;              // "0-9,17"
  bool training_set = false;        // instead of the test set
  uint32_t top = 3;                 // classes to show of each
  bool json = false, csv = false;   // csv: of images
  std::string worker_program;
  std::function<DataCount(const config::Config&)> count_data;
};

// Has a worker program compute them, by itself, and prints them: images one by one as they are
// done, samples in the order asked for, with the bits of an evaluation, since they are computed
// within its blocks. The source is only read, nothing is written. Throws Error, after all images
// also for those that cannot be read. Called from the main thread, while there is no other one.
int RunPredict(const PredictArguments& arguments);

}  // namespace muster
