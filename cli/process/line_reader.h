// Reads lines from a non-blocking descriptor.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "common/base/fd.h"

namespace muster {

// Owned and used by one thread. A line longer than `max_line_bytes` is truncated, which bounds the
// memory; the parser will reject the line.
class LineReader {
 public:
  LineReader() = default;  // at_end()
  LineReader(UniqueFd fd, size_t max_line_bytes);

  // Reads the available bytes without waiting, at most about 1 MiB, and calls `on_line` for each
  // complete line, without its newline. At the end of the file, also passes a last line that lacks
  // a newline.
  void Read(const std::function<void(const std::string&)>& on_line);

  int fd() const { return fd_.get(); }  // -1 after the other side has closed
  bool at_end() const { return !fd_.valid(); }

 private:
  UniqueFd fd_;
  size_t max_line_bytes_ = 0;
  std::string line_;       // the part of a line that has arrived
  bool skipping_ = false;  // inside a line that is too long
};

}  // namespace muster
