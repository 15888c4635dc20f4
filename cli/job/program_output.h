// Shows what the program of rank 0 prints, as it does so. Its log has that, too, between the lines
// of its helper.
#pragma once

#include <cstdint>
#include <string>

#include "cli/text/console.h"

namespace muster {

class ProgramOutput {
 public:
  // Begins at the present end of the log, which need not exist yet. "": shows nothing.
  explicit ProgramOutput(std::string log_path);

  // Prints the lines that are new; with `ended` also one without its end. Of a flood it prints only
  // the last part.
  void Show(Console& console, bool ended = false);

 private:
  void Print(std::string line, Console& console) const;

  std::string log_path_;
  int64_t shown_ = 0;    // bytes
  std::string partial_;  // the beginning of a line
};

}  // namespace muster
