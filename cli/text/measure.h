// The numbers of an evaluation, as every command names and prints them.
#pragma once

#include <string>

namespace muster {

struct Measure {
  bool on_validation = false;  // else on the test set
  bool is_loss = false;        // else the accuracy, which values do not have

  std::string Name(char between = ' ') const;  // "test loss"; as a key of JSON with '_' between
  std::string Text(double value) const;        // "98.40 %", "0.1234"; "-" if it is not finite
  std::string Named(double value) const;       // "test loss 0.1234"
};

inline constexpr Measure kMeasures[] = {{true, false}, {true, true}, {false, false}, {false, true}};

}  // namespace muster
