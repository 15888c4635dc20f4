// oracle CONFIG [path=value …]: trains with the oracle and prints the weights hash. CONFIG may be a
// run's config.txtpb.
#include <fmt/core.h>

#include "common/base/error.h"
#include "common/config/config.h"
#include "tests/oracle/oracle.h"

int main(int argc, char** argv) try {
  if (argc < 2)
    throw muster::Error(muster::ExitCode::kUsage, "usage: oracle CONFIG [path=value ...]");
  std::vector<muster::Setting> settings;
  for (int i = 2; i < argc; ++i) settings.push_back(muster::ParseSetting(argv[i]));
  muster::config::Config config = muster::LoadConfig(argv[1], settings);
  muster::ResolveConfig(config, muster::AvailableCores());
  const muster::oracle::Result result = muster::oracle::Train(config);
  fmt::print("{} steps, accuracy {:.4f}, loss {:.6f}\nweights hash {:016x}\n", result.steps,
             result.accuracy, result.loss, result.weights_hash);
} catch (const muster::Error& error) {
  fmt::print(stderr, "oracle: {}\n", error.what());
  return static_cast<int>(error.code());
}
