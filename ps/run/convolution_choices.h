// The convolution algorithms that workers report in Ready, as an opaque line. Workers with the same
// arithmetic (Hello) must choose the same algorithms. Otherwise the bits of the run would depend on
// which worker computed a slice. Workers on different hardware compute different bits anyway.
//
// Owner: the run. Used on the loop thread.
#pragma once

#include <map>
#include <string>

#include "proto/checkpoint.pb.h"

namespace muster {

class ConvolutionChoices {
 public:
  // Restores the choices that were in use before the run resumed.
  void Restore(const checkpoint::Arithmetic& kept);
  // Adds one line for each worker arithmetic that `state` already lists.
  void Keep(checkpoint::Arithmetic& state) const;

  struct Taken {
    std::string refusal;  // why this worker is rejected, or ""
    std::string warning;  // says that the bits of the run may change from here on, or ""
  };
  // `who`: the worker, in messages.
  Taken Take(const std::string& who, const std::string& arithmetic, const std::string& line);

 private:
  struct Choice {
    std::string line, who;  // the first one with it
  };
  std::map<std::string, Choice> choices_;      // by arithmetic
  std::map<std::string, std::string> before_;  // the lines before the run resumed
};

}  // namespace muster
