// What a simulated run is like, and what goes wrong in it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/protocol/model_job.h"
#include "tests/simulation/scheduler.h"

namespace muster::testing {

// A suspended process runs nothing for `lasts`; a partition holds what is on its way.
struct ClusterFault {
  enum class Kind {
    kKill,           // of a worker; its connection ends
    kLoseHost,       // a worker ends, and nothing says so
    kSuspend,        // a worker
    kSlowDown,       // a worker, for good
    kPartition,      // a worker and the server
    kLeave,          // a worker wants to go
    kJoin,           // one comes that nobody waits for
    kKillServer,     // and all workers with it, as a launcher does
    kSuspendServer,  // for less than workers take for silence
    kKillAll,        // workers, at about the same time
    kSlowDownAll,    // workers, for good
    kSlowWire,       // tensors take longer to the worker with this rank, for good
  };
  Kind kind = Kind::kKill;
  Duration at{};
  uint32_t worker = 0;  // one of those that live then
  Duration lasts{};
  int64_t factor = 1;
};

// Work that ends the process that computes it. Each set of an evaluation has a block of that
// number.
struct Deadly {
  int64_t step = -1;
  int64_t slice = -1, block = -1;                  // one of the two
  int times = 0;                                   // for each set
  std::map<wire::EvaluationSet, int> losses = {};  // so far
};

struct Scenario {
  Bounds bounds;
  Duration slice_time{};
  std::vector<bool> shares_memory;  // of each rank
  std::vector<ClusterFault> faults;
  Deadly deadly;
  bool replaces = true;  // the launcher starts again what is lost
  uint32_t min_workers = 1;
  config::Cluster::OnLostWorker on_lost_worker = config::Cluster::REPLACE;
  uint32_t absent = 0;  // the number of ranks, the last ones, that the launcher does not start
};

// What a seed decides.
Scenario ScenarioOf(uint64_t seed);

// Situations in which recovery once failed, or could.
struct NamedScenario {
  const char* name;
  std::optional<double> within_s;  // of the cluster: it takes longer where work is left lying
  Scenario scenario;
  double after_s = 0;             // the run ends earlier where it does not wait for somebody
  const char* failure = nullptr;  // the run must fail, with these words
};
std::vector<NamedScenario> NamedScenarios();

std::string TextOf(const Scenario& scenario);
const char* NameOf(ClusterFault::Kind kind);

}  // namespace muster::testing
