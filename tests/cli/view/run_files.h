// Writes run directories like those of a run.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/data/temp_dir.h"

namespace muster::testing {

class RunFiles : public ::testing::Test {
 protected:
  // Creates a run directory with these lines of metrics and returns its path.
  std::string MakeRun(const std::string& name, const std::vector<std::string>& metrics);
  void Write(const std::string& path, const std::string& text);  // below Dir()
  // Writes the status of the run `name`, in protobuf's text form.
  void WriteStatus(const std::string& name, const std::string& status);
  std::string Dir() const { return dir_.string(); }

 private:
  const TempDir dir_;
};

// Lines of metrics.jsonl.
std::string IntervalText(int step, double loss);
std::string EvaluationText(int step, double accuracy);
std::string ValidationText(int step, double accuracy);
// A line of a value evaluation, which has no accuracy. `set` is "test" or "validation".
std::string LossText(int step, const std::string& set, double loss);
std::string FinalText(int step, const std::string& reason);

}  // namespace muster::testing
