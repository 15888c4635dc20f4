// Merging parts of a trace, whatever they contain, gives a trace that can be read and summarized.
// An error names the file, and an existing trace is not lost.
#include <sstream>

#include "cli/trace/merge.h"
#include "cli/trace/summary.h"
#include "cli/trace/trace_data.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace fuzz_trace {

void CheckParts(const Folder& folder, const std::string& first, const std::string& second) {
  const std::vector<std::string> parts{folder.Write("trace.server.part", first),
                                       folder.Write("trace.worker-0.part", second)};
  const std::string merged = folder / "trace.json";
  std::filesystem::remove(merged);
  MergedTrace taken;
  if (!OrError(merged, [&] { taken = MergeTrace(parts, merged); })) return;
  try {
    const Trace trace = ReadTrace(merged);
    size_t spans = 0;
    for (const TraceTrack& track : trace.tracks) spans += track.spans.size();
    Require(spans == taken.spans, "spans were lost in the merged trace");
    for (const std::string& line : TraceSummary(trace))
      Require(line.size() < 1 << 20, "a long line");
  } catch (const std::exception& error) {
    Broken("the merged trace cannot be read: " + std::string(error.what()));
  }
  // An existing file is replaced only if it could be read.
  if (!OrError("", [&] { (void)MergeTrace(parts, merged, MergeMode::kRefuseOthers); })) {
    (void)ReadTrace(merged);
  }
}

void CheckTrace(const Folder& folder, const std::string& text) {
  const std::string path = folder.Write("a.json", text);
  OrError(path, [&] { (void)TraceSummary(ReadTrace(path)); });
}

}  // namespace fuzz_trace
}  // namespace muster::fuzz

// The first byte tells whether the rest is a trace or two parts.
FUZZ_TARGET(trace) {
  muster::fuzz::SilenceLogs();
  static const muster::fuzz::Folder folder;
  muster::fuzz::Input input(data, size);
  if (input.Byte() == 0) {
    muster::fuzz::fuzz_trace::CheckTrace(folder, input.Rest());
  } else {
    const std::string first = input.Text();
    muster::fuzz::fuzz_trace::CheckParts(folder, first, input.Rest());
  }
  return 0;
}
