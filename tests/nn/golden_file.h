// Reads tests/nn/golden/*.txt: inputs of a layer and PyTorch's results. scripts/make_golden.py
// writes the files and describes the format.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "common/base/memory.h"
#include "common/graph/graph.h"
#include "worker/backend/backend.h"

namespace muster {

struct GoldenCase {
  std::string file, name;
  std::string settings;  // conv2d { filters: 4 kernel: [3, 3] }
  Mode mode = Mode::kTraining;
  int64_t batch = 0;
  std::vector<Shape> inputs;
  std::map<std::string, std::vector<float>> tensors;

  bool Has(const std::string& tensor) const { return tensors.contains(tensor); }
  const std::vector<float>& At(const std::string& tensor) const;
  // "input" with one input; with several "input0", "input1", …
  std::string InputName(const std::string& stem, size_t index) const;
  // The layer, as a backend gets it from a graph.
  Layer MakeLayer() const;
};

// For GoogleTest's messages.
void PrintTo(const GoldenCase& c, std::ostream* out);

// All cases of all files. Throws std::runtime_error with file and line if one is invalid.
const std::vector<GoldenCase>& GoldenCases();

}  // namespace muster
