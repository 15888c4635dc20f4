// Cuts what arrives on a non-blocking descriptor into lines.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "common/base/fd.h"

namespace muster {

// Owned and used by one thread. A line longer than `max_line_bytes` is cut there, so a writer that
// goes wrong costs bounded memory, and the reader of the line sees that it is not whole.
class LineReader {
 public:
  LineReader() = default;  // at its end from the start
  LineReader(UniqueFd fd, size_t max_line_bytes);

  // Reads what is there without waiting, at most about 1 MiB, and calls `on_line` for each whole
  // line, without its newline. A last line that has no newline is delivered at the end of the file.
  void Read(const std::function<void(const std::string&)>& on_line);

  int fd() const { return fd_.get(); }  // -1 once the other side has closed
  bool at_end() const { return !fd_.valid(); }

 private:
  UniqueFd fd_;
  size_t max_line_bytes_ = 0;
  std::string line_;       // the part of a line that has arrived
  bool skipping_ = false;  // inside a line that is too long
};

}  // namespace muster
