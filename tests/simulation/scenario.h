// The settings and faults of a simulated run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/protocol/model_job.h"
#include "tests/simulation/scheduler.h"

namespace muster::testing {

// A suspended process runs nothing for `lasts`. A partition delays messages.
struct ClusterFault {
  enum class Kind {
    kKill,           // a worker; its connection ends
    kLoseHost,       // a worker ends, and its connection shows nothing
    kSuspend,        // a worker
    kSlowDown,       // a worker, permanently
    kPartition,      // between a worker and the server
    kLeave,          // a worker requests to leave
    kJoin,           // an additional worker joins
    kKillServer,     // and all workers with it, as a launcher does
    kSuspendServer,  // for less than silence_s
    kKillAll,        // workers, at about the same time
    kSlowDownAll,    // workers, permanently
    kSlowWire,       // tensors to the worker with this rank become slower, permanently
    kKillRelay,
    kSuspendRelay,
  };
  Kind kind = Kind::kKill;
  Duration at{};
  uint32_t worker = 0;  // an index into the living workers
  Duration lasts{};
  int64_t factor = 1;
};

// Work that ends the process that computes it, or that it never returns from. Each set of an
// evaluation has a block of that number.
struct Deadly {
  int64_t step = -1;
  int64_t slice = -1, block = -1;  // one of the two
  int times = 0;                   // for each set
  bool hangs = false;
  std::map<wire::EvaluationSet, int> losses = {};  // so far
};

struct Scenario {
  Bounds bounds;
  Duration slice_time{};
  std::vector<bool> shares_memory;  // of each rank
  // By rank, the host through whose relay a worker reaches the server, or -1. Empty: none does.
  std::vector<int> relays;
  // By host, the host through whose relay its own leads to the server, or -1. Missing: -1.
  std::vector<int> via;
  // The speed of each host's network card; 0: transfers take random times. Then `hosts` has each
  // rank's host; the server's is host 0.
  double bytes_per_second = 0;
  std::vector<size_t> hosts;
  std::vector<ClusterFault> faults;
  Deadly deadly;
  bool replaces = true;  // the launcher restarts lost workers
  uint32_t min_workers = 1;
  config::Cluster::OnLostWorker on_lost_worker = config::Cluster::REPLACE;
  uint32_t absent = 0;  // the number of ranks, the last ones, that the launcher does not start
};

// Derives a scenario from a seed.
Scenario ScenarioOf(uint64_t seed);

// The same with relays on some hosts, and faults of them, chosen by the seed.
Scenario Relayed(Scenario scenario, uint64_t seed);

// Situations in which recovery failed in the past, or could fail.
struct NamedScenario {
  const char* name;
  std::optional<double> within_s;  // simulated time; it takes longer if work is left undone
  Scenario scenario;
  double after_s = 0;             // the run ends earlier if it does not wait for a worker
  const char* failure = nullptr;  // the run must fail with this text in its error
  int64_t most_redone = -1;  // repeated orders: more mean that others were taken for slow; -1: any
};
std::vector<NamedScenario> NamedScenarios();

std::string TextOf(const Scenario& scenario);
const char* NameOf(ClusterFault::Kind kind);

}  // namespace muster::testing
