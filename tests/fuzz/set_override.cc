// PATH=VALUE lines, like those of --set, applied to a valid config. An error names the setting or
// the file. An accepted config prints and parses to the same config.
#include <sstream>

#include "common/config/config.h"
#include "proto/config.pb.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace fuzz_set_override {

constexpr const char* kConfig = R"(
  run { epochs: 2 global_batch: 32 }
  data { format: SYNTHETIC synthetic { height: 8 width: 8 channels: 3 classes: 4 } }
  model {
    layer { name: "conv" conv2d { filters: 4 kernel: 3 } }
    layer { name: "relu" relu {} }
    layer { name: "out" dense { units: 4 } }
    layer { name: "loss" softmax_cross_entropy {} }
  }
  optimizer { type: MOMENTUM momentum: 0.8 }
  learning_rate { base: 0.1 }
)";
constexpr size_t kMostSettings = 8;

void Check(const std::string& text, const std::string& path) {
  std::vector<Setting> settings;
  std::istringstream lines(text);
  for (std::string line; settings.size() < kMostSettings && std::getline(lines, line);) {
    if (!OrError("--set", [&] { settings.push_back(ParseSetting(line)); })) return;
    // Other files are left to other targets.
    if (settings.back().path == "model_file") return;
  }
  config::Config config;
  // If two settings contradict each other, the error may name either, even the file's.
  const bool taken = OrError("", [&] { config = LoadConfig(path, settings); });
  if (!taken || !OrError("", [&] { ResolveForMachine(config, 2); })) return;
  const std::string printed = ConfigText(config);
  try {
    config::Config again = ParseConfigText(printed, "printed");
    ResolveForMachine(again, 2);
    if (ConfigText(again) != printed) Broken("printing twice differs: " + ConfigText(again));
  } catch (const std::exception& error) {
    Broken("the printed text is refused: " + std::string(error.what()) + "\n" + printed);
  }
}

}  // namespace fuzz_set_override
}  // namespace muster::fuzz

FUZZ_TARGET(set_override) {
  using muster::fuzz::Folder;
  muster::fuzz::SilenceLogs();
  static const Folder folder;
  static const std::string path =
      folder.Write("base.txtpb", muster::fuzz::fuzz_set_override::kConfig);
  muster::fuzz::fuzz_set_override::Check({reinterpret_cast<const char*>(data), size}, path);
  return 0;
}
