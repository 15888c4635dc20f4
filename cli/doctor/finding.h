// What `muster doctor` says of one thing.
#pragma once

#include <string>
#include <vector>

namespace muster {

struct Finding {
  enum class Grade {
    kOk,
    kNote,   // a run would work, less well
    kWrong,  // a run would fail
  };
  Grade grade = Grade::kOk;
  std::string subject;  // a word or two
  std::string found;
  std::string remedy;  // what to do; "" with kOk
};

using Findings = std::vector<Finding>;

}  // namespace muster
