#include "worker/nn/plan_tower.h"

#include <algorithm>
#include <set>

namespace muster {

void PlanTower(const StepPlan& plan, int64_t test_samples, int64_t block, Tower& tower) {
  std::set<int64_t> sizes;
  for (const int64_t step : {int64_t{0}, plan.StepsPerEpoch() - 1}) {
    const Batch batch = plan.At(step);
    for (int64_t s = 0; s < plan.slices; ++s) sizes.insert(plan.Slice(batch, s).size());
  }
  sizes.erase(0);
  for (const int64_t size : sizes) tower.Plan(size, Mode::kTraining);
  if (test_samples == 0) return;
  tower.Plan(std::min(test_samples, block), Mode::kInference);
  if (test_samples > block && test_samples % block != 0) {
    tower.Plan(test_samples % block, Mode::kInference);
  }
}

}  // namespace muster
