// A config that is taken is printed, and its print is taken as the same config; what is refused is
// refused with the file's name.
#include "common/config/config.h"
#include "tests/fuzz/round_trip.h"

namespace muster::fuzz {
namespace {

void Check(const std::string& text) {
  config::Config config;
  const bool taken = OrError("a.txtpb", [&] { config = ParseConfigText(text, "a.txtpb"); });
  // What only this machine can say may be refused for its sake.
  if (!taken || !OrError("", [&] { ResolveForMachine(config, 2); })) return;
  const config::Config again =
      ReadAgain<config::Config>(config, ConfigText, [](const std::string& printed) {
        config::Config read = ParseConfigText(printed, "printed");
        ResolveForMachine(read, 2);
        return read;
      });
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  RequireSameNetwork(graph, again.model(), InputShape(again.data()));
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::SilenceLogs();
  muster::fuzz::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}
