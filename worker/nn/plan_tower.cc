#include "worker/nn/plan_tower.h"

#include <algorithm>
#include <set>

namespace muster {

void PlanTower(const StepPlan& plan, std::initializer_list<int64_t> evaluated, int64_t block,
               Tower& tower) {
  std::set<int64_t> sizes;
  for (const int64_t step : {int64_t{0}, plan.StepsPerEpoch() - 1}) {
    const Batch batch = plan.At(step);
    for (int64_t s = 0; s < plan.slices; ++s) sizes.insert(plan.Slice(batch, s).size());
  }
  sizes.erase(0);
  for (const int64_t size : sizes) tower.Plan(size, Mode::kTraining);
  for (const int64_t samples : evaluated) {
    if (samples == 0) continue;
    tower.Plan(std::min(samples, block), Mode::kInference);
    if (samples > block && samples % block != 0) tower.Plan(samples % block, Mode::kInference);
  }
}

}  // namespace muster
