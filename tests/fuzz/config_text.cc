// An accepted config prints and parses to the same config. An error names the file. A run with the
// config can be resumed with it. As a checkpoint's config, any text is either resumable or an
// Error.
#include "common/checkpoint/resumable_config.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/config/resolved.h"
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
  // Settings that depend on the machine may still be refused.
  if (!taken || !OrError("", [&] { ResolveForMachine(config, 2); })) return;
  const config::Config again =
      ReadAgain<config::Config>(config, ConfigText, [](const std::string& printed) {
        config::Config read = ParseConfigText(printed, "printed");
        ResolveForMachine(read, 2);
        return read;
      });
  // As config.txtpb, whatever of it the user wrote.
  for (const config::Config& written : {config::Config(), config}) {
    const config::Config run = ParseConfigText(RunConfigText(written, config), "config.txtpb");
    Require(ConfigText(run) == ConfigText(config), "config.txtpb has another config");
  }
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  RequireSameNetwork(graph, again.model(), InputShape(again.data()));
  try {
    Require(CheckResumable(FrozenConfigText(config), again).empty(), "the run's config differs");
  } catch (const std::exception& error) {
    Broken("a run cannot be resumed with its own config: " + std::string(error.what()));
  }
}

}  // namespace fuzz_config_text
}  // namespace muster::fuzz

FUZZ_TARGET(config_text) {
  muster::fuzz::SilenceLogs();
  muster::fuzz::fuzz_config_text::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}
