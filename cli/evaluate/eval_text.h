// The result of `muster eval`, for people and for programs: scores, and which classes were taken
// for which.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/model/model_metadata.h"
#include "proto/config_fwd.h"

namespace muster {

// counts[label][predicted].
using ConfusionCounts = std::vector<std::vector<int64_t>>;

// Reads what the server writes: "label,cat,dog,…,total", a row for each label, a row "total".
// `names`: of the classes; empty: the server wrote numbers. Throws Error(kFailure) for anything
// else.
ConfusionCounts ParseConfusion(const std::string& csv, const std::vector<std::string>& names);

// A row for each class: how many images, how many of them were right, how many of those that were
// taken for it are of it, and what it is taken for most often. Then the most frequent confusions.
// Of many classes those with the lowest recall, unless `all` are asked for; these are in order,
// and followed by all counts, where they fit. `names` may be empty.
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
  std::string data;  // "/data/cifar10", "made up"
  std::string data_remark;
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
