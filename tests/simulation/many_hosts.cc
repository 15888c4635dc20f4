#include "tests/simulation/many_hosts.h"

#include "common/base/error.h"
#include "tests/simulation/cluster.h"

namespace muster::testing {
namespace {

// A model of about 28,000 floats in chunks of 1 KiB stands for one of 100 MB in chunks of 1 MiB.
constexpr int64_t kHidden = 2000;

Scenario ScenarioOf(const ManyHosts& many, int64_t steps) {
  Scenario scenario;
  const int workers = many.hosts * many.workers;
  scenario.bounds = {.workers = static_cast<uint32_t>(workers),
                     .slices = static_cast<uint32_t>(workers),
                     .steps = steps,
                     .hidden = kHidden};
  const bool relays = many.sums != ManyHosts::Sums::kNone;
  for (int rank = 0; rank < workers; ++rank) {
    const int host = rank / many.workers;
    scenario.hosts.push_back(static_cast<size_t>(host));
    scenario.shares_memory.push_back(host == 0 || relays);
    if (relays) scenario.relays.push_back(host - 1);  // the server's host has none
  }
  if (many.sums == ManyHosts::Sums::kTree) {
    for (int host = 1; host < many.hosts; ++host) scenario.via.push_back((host & (host - 1)) - 1);
  }
  const auto bytes = static_cast<double>(ModelJob({.hidden = kHidden}).floats() * sizeof(float));
  scenario.bytes_per_second = many.gbits * 1e9 / 8 * bytes / (many.megabytes * 1e6);
  return scenario;
}

double Seconds(const ManyHosts& many, int64_t steps) {
  Cluster cluster(ScenarioOf(many, steps), /*seed=*/1);
  if (const std::string wrong = cluster.Run(); !wrong.empty()) {
    throw Error(ExitCode::kFailure, "{}", wrong);
  }
  return cluster.virtual_seconds();
}

}  // namespace

double SecondsPerStep(const ManyHosts& many) {
  constexpr int kFirst = 8, kLast = 12;
  return (Seconds(many, kLast) - Seconds(many, kFirst)) / (kLast - kFirst);
}

}  // namespace muster::testing
