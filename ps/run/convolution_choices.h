// Which way each convolution goes on the workers, as they say it in Ready: a line that is compared,
// not read. Workers of the same arithmetic (Hello) must go the same ways, or the bits of the run
// would depend on who computed what. Workers on other hardware differ in bits in any case.
//
// Owner: the run. Used in the loop's thread.
#pragma once

#include <map>
#include <string>

#include "proto/checkpoint.pb.h"

namespace muster {

class ConvolutionChoices {
 public:
  // What a checkpoint holds, with which the run went on.
  void Restore(const checkpoint::Arithmetic& kept);
  // Adds the lines of the wordings that `state` has already.
  void Keep(checkpoint::Arithmetic& state) const;

  struct Taken {
    std::string refusal;  // why this worker cannot compute here; "" if it can
    std::string warning;  // the bits of the run change from here on; "" if not
  };
  Taken Take(const std::string& arithmetic, const std::string& line);

 private:
  std::map<std::string, std::string> lines_, before_;  // arithmetic → line; before the run went on
};

}  // namespace muster
