#include "worker/trainer/tune.h"

#include <chrono>
#include <optional>
#include <string>

#include "common/base/log.h"
#include "common/link/protocol.h"
#include "proto/config.pb.h"
#include "worker/backend/algorithm_table.h"
#include "worker/nn/plan_tower.h"
#include "worker/nn/tower.h"
#include "worker/trainer/milliseconds.h"

namespace muster {
namespace {

static_assert(AlgorithmTable::kMostBytes == kMostTuningBytes,
              "the server takes what a backend writes");

// Of every batch that any worker may compute.
std::string TimeAlgorithms(const config::Config& config, const Graph& graph, int64_t test_samples,
                           Backend& backend, const StepPlan& plan) {
  const auto begin = std::chrono::steady_clock::now();
  backend.tuning()->Measure();
  Tower tower(graph, backend, config.run().seed());
  PlanTower(plan, test_samples, config.evaluation().batch(), tower);
  TuningResult result = backend.tuning()->Result();
  LogInfo("worker.autotune: timed {} in {:.1f} s", result.summary,
          Milliseconds(std::chrono::steady_clock::now() - begin) * 1e-3);
  return std::move(result.choice);
}

}  // namespace

void Tune(const config::Config& config, const Graph& graph, int64_t test_samples, Backend& backend,
          Client& client) {
  if (backend.tuning() == nullptr) return;
  std::optional<std::string> choice;
  while (!(choice = client.AwaitTuning())) {
    client.ReportTuning(TimeAlgorithms(config, graph, test_samples, backend, client.plan()));
  }
  if (choice->empty()) return;
  backend.tuning()->Use(*choice);
  LogInfo("worker.autotune: the algorithms are the job's choice");
}

}  // namespace muster
