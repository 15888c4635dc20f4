// A config that is taken is printed, and its print is taken as the same config; what is refused is
// refused with the file's name.
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/graph/graph.h"
#include "proto/config.pb.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace {

void Check(const std::string& text) {
  config::Config config;
  const bool taken = OrError("a.txtpb", [&] { config = ParseConfigText(text, "a.txtpb"); });
  // What only this machine can say may be refused for its sake.
  if (!taken || !OrError("", [&] { ResolveForMachine(config, 2); })) return;
  const std::string printed = ConfigText(config);
  config::Config again;
  try {
    again = ParseConfigText(printed, "printed");
    ResolveForMachine(again, 2);
  } catch (const std::exception& error) {
    Broken("what was printed is not taken: " + std::string(error.what()) + "\n" + printed);
  }
  if (ConfigText(again) != printed) Broken("printed twice: " + ConfigText(again));
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  Require(
      graph.layout().hash() == BuildGraph(again.model(), InputShape(again.data())).layout().hash(),
      "the network that was printed has other variables");
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::SilenceLogs();
  muster::fuzz::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}
