// `muster predict`: classifies image files, or single samples of a data set.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cli/data/count_samples.h"
#include "cli/evaluate/evaluation_config.h"
#include "common/graph/probabilities.h"

namespace muster {

struct Candidate {
  int64_t number = 0;  // the class
  double probability = 0;
};

// Returns the most likely classes, the most likely one first. Among equals, the lower number comes
// first. `outputs` are the inputs of the network's loss: finite, and one per class. Computes in
// double precision.
std::vector<Candidate> MostLikely(std::span<const float> outputs, ProbabilitiesBy by, size_t count);
// Whether the label is more likely than every other class, as an evaluation counts it.
bool IsRight(std::span<const float> outputs, int64_t label);

struct PredictArguments {
  EvaluationSource source;
  std::vector<std::string> images;  // files and folders
  std::string samples;              // such as "0-9,17"; used if there are no images
  bool training_set = false;        // use it instead of the test set
  uint32_t top = 3;                 // classes to show per image
  bool json = false, csv = false;   // csv needs images
  std::string worker_program;
  std::function<DataCount(const config::Config&)> count_data;
};

// Lets a worker program compute the predictions. Prints each image when it is done. Prints samples
// in the requested order, with the same bits as an evaluation, because they are computed in its
// blocks. Writes no files. Throws Error; if some images could not be read, it throws after the last
// one. Call it from the main thread, while there is no other thread.
int RunPredict(const PredictArguments& arguments);

}  // namespace muster
