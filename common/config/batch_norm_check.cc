#include "common/config/batch_norm_check.h"

#include <algorithm>

#include "common/base/error.h"

namespace muster {
namespace {

const Layer* FirstWithoutArea(const Graph& graph) {
  for (const Layer& layer : graph.layers()) {
    const Shape& shape = layer.input_shape;
    if (layer.scale >= 0 && shape.height * shape.width == 1) return &layer;
  }
  return nullptr;
}

}  // namespace

void CheckBatchNorms(const Graph& graph, const StepPlan& plan) {
  const Layer* const layer = FirstWithoutArea(graph);
  if (layer == nullptr || plan.train_samples == 0) return;
  const auto check = [&](int64_t step, const char* which, const char* advice) {
    const int64_t samples = plan.At(step).samples;
    if (samples >= 2 * plan.slices) return;
    throw Error(ExitCode::kUsage,
                "layer \"{}\": batch_norm over one value per channel and sample needs at least 2 "
                "samples in each slice, got {} of {} in {} slices{}",
                layer->name, which, samples, plan.slices, advice);
  };
  const int64_t per_epoch = plan.StepsPerEpoch();
  if (per_epoch > 1 || plan.total_steps == 0)
    check(0, "a batch", "; choose a larger batch, or fewer slices (run.slices)");
  if (plan.total_steps >= per_epoch) {
    check(per_epoch - 1, "an epoch's last batch",
          "; choose a batch size that leaves a larger rest, or fewer slices (run.slices)");
  }
}

}  // namespace muster
