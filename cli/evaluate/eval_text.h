// The result of `muster eval` as text and as JSON: scores and confusions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/model/model_metadata.h"
#include "common/plan/confusion_matrix.h"
#include "common/plan/scalar_sums.h"

namespace muster {

// One row per class: images, correct images, recall, precision and the most frequent mistake. Then
// the most frequent confusions. With many classes, shows those with the lowest recall; with `all`,
// shows all in order, and then the confusion matrix if it fits. `names` may be empty.
std::vector<std::string> ConfusionLines(const ConfusionCounts& counts,
                                        const std::vector<std::string>& names, bool all);

// "3 cat", or "3" if the name is missing or "3" itself.
std::string ClassText(int64_t number, const std::vector<std::string>& names);
// "cat", or "3" if the name is missing.
std::string ClassName(size_t number, const std::vector<std::string>& names);

struct Scores {
  std::optional<double> accuracy;  // empty for regressions
  std::optional<double> loss;      // empty if unknown; may be not finite
  ScalarSums metrics = {};
};

struct EvaluationReport {
  std::string model;      // the file or the checkpoint
  std::string described;  // the same, with a description of the weights
  std::optional<int64_t> step;
  bool average = false;
  std::string data;              // "/data/cifar10", "made-up data"
  std::string set = "test";      // or "validation"
  int64_t images = 0;            // number in the set
  std::string sample = "image";  // see SampleNoun
  uint32_t workers = 0, threads = 0;
  Scores scores;
  // The run's own evaluation of these weights, if there was one.
  std::optional<Scores> reported;
  std::vector<std::string> class_names;
  std::optional<ConfusionCounts> confusion;  // empty if the loss is not finite
  bool all_classes = false;                  // show all classes
  std::string csv;                           // the file with the confusion matrix, or ""
};

// Returns the run's evaluation of exactly these weights on the set, from the metadata of a weights
// file.
std::optional<Scores> ReportedScores(const Metadata& metadata, const std::string& set);

std::vector<std::string> EvaluationLines(const EvaluationReport& report);
std::string EvaluationJson(const EvaluationReport& report);

}  // namespace muster
