// The result of `muster eval`, for people and for programs: scores, and which classes were taken
// for which.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/model/model_metadata.h"
#include "common/plan/confusion_matrix.h"

namespace muster {

// A row for each class: how many images, how many of them were right, how many of those that were
// taken for it are of it, and what it is taken for most often. Then the most frequent confusions.
// Shows the classes with the lowest recall where there are many, unless `all` are asked for. These
// come in order, and all counts follow, where they fit. `names` may be empty.
std::vector<std::string> ConfusionLines(const ConfusionCounts& counts,
                                        const std::vector<std::string>& names, bool all);

// "3 cat", or "3" without a name, or with that for one.
std::string ClassText(int64_t number, const std::vector<std::string>& names);

struct Scores {
  std::optional<double> accuracy;  // empty: of values
  std::optional<double> top5_accuracy;
  std::optional<double> loss;  // empty: not finite
};

struct EvaluationReport {
  std::string model;      // the file or the checkpoint
  std::string described;  // the same, and what it holds
  std::optional<int64_t> step;
  bool average = false;
  std::string data;          // "/data/cifar10", "made up"
  std::string set = "test";  // or "validation"
  int64_t images = 0;        // of it
  uint32_t workers = 0, threads = 0;
  Scores scores;
  // What the run says of the same weights, if it evaluated them.
  std::optional<Scores> reported;
  std::vector<std::string> class_names;
  std::optional<ConfusionCounts> confusion;
  bool all_classes = false;  // all of it is asked for
  std::string csv;           // where the counts were written, or ""
};

// What the metadata of a file of weights say of an evaluation of just these on the set.
std::optional<Scores> ReportedScores(const Metadata& metadata, const std::string& set);

std::vector<std::string> EvaluationLines(const EvaluationReport& report);
std::string EvaluationJson(const EvaluationReport& report);

}  // namespace muster
