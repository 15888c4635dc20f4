// `muster eval`: the test accuracy of weights that are there, by one worker process.
#pragma once

#include <functional>
#include <string>

#include "cli/data/count_samples.h"
#include "cli/evaluate/evaluation_config.h"

namespace muster {

struct EvalArguments {
  EvaluationSource source;
  bool validation_set = false;  // also where there is a test set
  bool confusion = false;       // of all classes, and all counts
  std::string csv;              // where its counts are to be written, too; or ""
  bool json = false;
  double wait_s = 0;  // for cards
  std::string worker_program;
  std::function<DataCount(const config::Config&)> count_data;
};

// Has a worker program compute all blocks of the set, adds them up as the server of a run does, and
// prints what came out. The source is only read. Throws Error. Called from the main thread, while
// there is no other one.
int RunEval(const EvalArguments& arguments);

}  // namespace muster
