// The lines of metrics.jsonl that a resumed run keeps: those up to its checkpoint, which stores
// their length in bytes and their hash. If the file was changed, the position and the missing lines
// are derived from the lines themselves.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

// The lines that a run must have written up to W(step).
struct DueLines {
  int64_t step = 0;
  bool evaluated = false;                  // an evaluation of W(step) has ended
  bool tested = false;                     // a test of W(step) has ended
  std::vector<int64_t> logs, evaluations;  // steps, ascending
};

struct KeptLines {
  size_t bytes = 0;                        // up to the first line that will be written again
  std::vector<int64_t> logs, evaluations;  // in file order
  std::vector<int64_t> unreadable;         // line numbers from 1
};

// Ignores an incomplete line at the end of `text`.
KeptLines KeptLinesOf(std::string_view text, const DueLines& due);

// "missing: 36 of 120 lines of steps (10 to 360) and 2 of 6 evaluations (100, 200); a line
// is unreadable (line 45)", or "".
std::string LackingText(const DueLines& due, const KeptLines& kept);

}  // namespace muster
