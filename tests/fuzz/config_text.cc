// A config that is taken is printed, and its print is taken as the same config; what is refused is
// refused with the file's name. A run with it goes on with it. As the config of a checkpoint, any
// text is the run's, or an Error.
#include "common/checkpoint/resumable_config.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "tests/fuzz/round_trip.h"

namespace muster::fuzz {
namespace fuzz_config_text {

constexpr const char* kSmall = R"(
  run { steps: 3 global_batch: 16 }
  data { format: SYNTHETIC synthetic { height: 8 width: 8 channels: 3 classes: 4 } }
  model {
    layer { name: "out" dense { units: 4 } }
    layer { name: "loss" softmax_cross_entropy {} }
  }
  optimizer { type: SGD }
  learning_rate { base: 0.1 }
)";

void Check(const std::string& text) {
  static const config::Config now = [] {
    config::Config small = ParseConfigText(kSmall, "small");
    ResolveForMachine(small, 2);
    return small;
  }();
  OrError("", [&] { (void)CheckResumable(text, now); });
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
  try {
    Require(CheckResumable(FrozenConfigText(config), again).empty(), "another config of the run");
  } catch (const std::exception& error) {
    Broken("a run does not go on with its own config: " + std::string(error.what()));
  }
}

}  // namespace fuzz_config_text
}  // namespace muster::fuzz

FUZZ_TARGET(config_text) {
  muster::fuzz::SilenceLogs();
  muster::fuzz::fuzz_config_text::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}
