// The lines of metrics.jsonl that a resumed run keeps: all up to its checkpoint, which knows how
// many bytes they have, and their hash. Where somebody has changed the file, the lines themselves
// say where the checkpoint's moment is, and what is missing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

// The lines that a run which goes on from W(step) has written.
struct DueLines {
  int64_t step = 0;
  bool evaluated = false;                  // an evaluation of W(step) is over …
  bool tested = false;                     // … and one on the test set
  std::vector<int64_t> logs, evaluations;  // their steps, ascending
};

struct KeptLines {
  size_t bytes = 0;                        // up to the first line of what is to be done again
  std::vector<int64_t> logs, evaluations;  // as they come
  std::vector<int64_t> unreadable;         // numbers of lines, from 1
};

// A line that is not whole at the end of `text` is not kept.
KeptLines KeptLinesOf(std::string_view text, const DueLines& due);

// "it lacks 36 of 120 lines of steps (10 to 360) and 2 of 6 evaluations (100, 200); a line cannot
// be read (line 45)", or "" if nothing is amiss.
std::string LackingText(const DueLines& due, const KeptLines& kept);

}  // namespace muster
