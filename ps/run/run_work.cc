#include "ps/run/run_work.h"

#include "common/config/config.h"
#include "common/config/data_format.h"

namespace muster {
namespace {

// Regression has no confusion matrix and no images that show a class.
config::Evaluation EvaluationOf(const config::Config& config) {
  config::Evaluation evaluation = config.evaluation();
  if (HasValues(config.data())) evaluation.clear_confusion_matrix();
  return evaluation;
}

uint32_t ImagesOf(const config::Config& config) {
  const bool shows_images =
      config.tensorboard().enabled() && !HasValues(config.data()) && !HasProgram(config);
  return shows_images ? config.tensorboard().images() : 0;
}

}  // namespace

RunWork::RunWork(const config::Config& config, const Graph& graph, size_t chunks, uint32_t seats)
    : slices(chunks),
      shares(config.cluster().shares() == config::Cluster::MEASURED, seats),
      evaluator(EvaluationOf(config), HasProgram(config) ? 1 : graph.classes(), ImagesOf(config),
                NamesOfClasses(config.data())) {}

}  // namespace muster
