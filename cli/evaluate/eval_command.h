// `muster eval`: evaluates existing weights in one worker process.
#pragma once

#include <functional>
#include <string>

#include "cli/data/count_samples.h"
#include "cli/evaluate/evaluation_config.h"

namespace muster {

struct EvalArguments {
  EvaluationSource source;
  bool validation_set = false;  // use it even if there is a test set
  bool confusion = false;       // show all classes and the confusion matrix
  std::string csv;              // also write the matrix to this file; or ""
  std::string html;             // also write a page to this file; or ""
  bool json = false;
  double wait_s = 0;  // how long to wait for GPUs
  std::string worker_program;
  std::function<DataCount(const config::Config&)> count_data;
};

// Lets a worker program compute all blocks of the set, adds them up as a run's server does, and
// prints the result. Does not change the source. Throws Error. Call it from the main thread, while
// there is no other thread.
int RunEval(const EvalArguments& arguments);

}  // namespace muster
