// The result of `muster eval`, for people and for programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/evaluate/confusion.h"
#include "common/model/model_metadata.h"
#include "proto/config_fwd.h"

namespace muster {

struct TestScores {
  double accuracy = 0;
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
  int64_t images = 0;
  uint32_t workers = 0, threads = 0;
  TestScores scores;
  // What the run says of the same weights, if it evaluated them.
  std::optional<TestScores> reported;
  std::vector<std::string> class_names;
  std::optional<ConfusionCounts> confusion;
  std::string csv;  // where the counts were written, or ""
};

// What the metadata of a file of weights say of an evaluation of just these.
std::optional<TestScores> ReportedScores(const Metadata& metadata);

std::vector<std::string> EvaluationLines(const EvaluationReport& report);
std::string EvaluationJson(const EvaluationReport& report);

}  // namespace muster
