// The text of metrics.jsonl as a resumed server reads it. The kept part consists of whole lines
// from the start, and reading it again keeps all of it. Missing lines are reported in one short
// line. Scalars for TensorBoard are in the order of the lines, only for steps that it does not
// have.
#include "ps/record/kept_lines.h"
#include "ps/tensorboard/line_scalars.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace fuzz_metrics_text {

void CheckKept(const std::string& text, const DueLines& due) {
  const KeptLines kept = KeptLinesOf(text, due);
  Require(kept.bytes <= text.size(), "more bytes than the text");
  Require(kept.bytes == 0 || text[kept.bytes - 1] == '\n', "an incomplete line");
  const KeptLines again = KeptLinesOf(text.substr(0, kept.bytes), due);
  Require(again.bytes == kept.bytes && again.logs == kept.logs &&
              again.evaluations == kept.evaluations && again.unreadable == kept.unreadable,
          "the lines differ after the cut");
  for (const int64_t step : kept.logs) Require(step <= due.step, "a line of a later step");
  Require(LackingText(due, kept).size() < 1000, "a long text");
}

void CheckScalars(const std::string& text, int64_t last, const LastSteps& written) {
  for (const tensorboard::Event& event : LaterScalars(text, last, written)) {
    Require(event.step() <= last, "a scalar of a later step");
    const auto last_written =
        std::ranges::min_element(written, {}, [](const auto& one) { return one.second; });
    Require(event.step() > last_written->second, "a duplicate scalar");
    Require(event.summary().value_size() > 0, "an empty event");
  }
}

}  // namespace fuzz_metrics_text
}  // namespace muster::fuzz

// The input: three small numbers, then the text.
FUZZ_TARGET(metrics_text) {
  using namespace muster::fuzz;
  using namespace muster::fuzz::fuzz_metrics_text;
  SilenceLogs();
  Input input(data, size);
  const int64_t step = input.Byte(), interval = input.Byte() - 1, evaluation = input.Byte() - 1;
  const std::string text = input.Rest();
  CheckKept(text, {.step = step,
                   .evaluated = step % 2 == 0,
                   .tested = step % 4 == 0,
                   .logs = {1, 2, 3},
                   .evaluations = {2}});
  CheckScalars(text, step,
               {{muster::kIntervalTag, interval},
                {muster::kValidationLossTag, evaluation / 2},
                {muster::kTestLossTag, evaluation}});
  return 0;
}
