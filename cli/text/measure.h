// Names and texts of the numbers that an evaluation measures.
#pragma once

#include <string>

namespace muster {

struct Measure {
  bool on_validation = false;  // otherwise on the test set
  bool is_loss = false;        // otherwise the accuracy, which regressions do not have

  std::string Name(char between = ' ') const;  // "test loss"; with '_', a JSON key
  std::string Text(double value) const;        // "98.40 %", "0.1234", "nan"
  std::string Named(double value) const;       // "test loss 0.1234"
};

inline constexpr Measure kMeasures[] = {{true, false}, {true, true}, {false, false}, {false, true}};

}  // namespace muster
