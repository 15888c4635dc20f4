// Run directories as a run leaves them, written by the test.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/data/temp_dir.h"

namespace muster::testing {

class RunFiles : public ::testing::Test {
 protected:
  // A run directory with these lines of metrics; returns its path.
  std::string MakeRun(const std::string& name, const std::vector<std::string>& metrics);
  void Write(const std::string& path, const std::string& text);  // below Dir()
  std::string Dir() const { return dir_.string(); }

 private:
  const TempDir dir_;
};

// Lines of metrics.jsonl.
std::string IntervalText(int step, double loss);
std::string EvaluationText(int step, double accuracy);
std::string ValidationText(int step, double accuracy);
// The line of an evaluation of values, which have no accuracy; `set` is "test" or "validation".
std::string LossText(int step, const std::string& set, double loss);
std::string FinalText(int step, const std::string& reason);

}  // namespace muster::testing
