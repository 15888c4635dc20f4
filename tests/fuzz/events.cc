// An event line that the launcher accepts prints and parses to the same event, and can be
// displayed.
#include "common/events/event_line.h"
#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(events) {
  using namespace muster;
  fuzz::SilenceLogs();
  fuzz::OrError("expected an event", [&] {
    const events::Event event = ParseEventLine({reinterpret_cast<const char*>(data), size});
    const std::string line = EventLine(event);
    fuzz::Require(line.ends_with('\n') && line.find('\n') == line.size() - 1, "not a single line");
    const events::Event again = ParseEventLine(std::string_view(line).substr(0, line.size() - 1));
    fuzz::Require(EventLine(again) == line, "the event changes when printed and parsed");
  });
  return 0;
}
