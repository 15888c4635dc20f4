#include "ps/tensorboard/event_scalars.h"

#include <string>

#include "common/plan/metrics.h"
#include "ps/tensorboard/summaries.h"

namespace muster {
namespace {

using Scalars = google::protobuf::RepeatedPtrField<events::Scalar>;

// The named scalars of programs, and metrics.
void AddNamed(tensorboard::Summary& summary, const std::string& set, const Scalars& scalars) {
  for (const events::Scalar& scalar : scalars) {
    const Metric* const metric = MetricNamed(scalar.name());
    const std::string tag = metric == nullptr ? set + "/" + scalar.name() : metric->Tag(set);
    if (scalar.has_value()) AddScalar(summary, tag, scalar.value());
  }
}

void AddInterval(tensorboard::Summary& summary, const events::Log& log) {
  const events::Measured& measured = log.measured();
  if (measured.has_train_loss()) AddScalar(summary, "loss/train", measured.train_loss());
  if (measured.has_train_accuracy()) {
    AddScalar(summary, "accuracy/train", measured.train_accuracy());
  }
  AddScalar(summary, "run/learning_rate", log.learning_rate());
  if (measured.has_loss_scale()) AddScalar(summary, "run/loss_scale", measured.loss_scale());
  AddScalar(summary, "run/images_per_second", measured.images_per_second());
  AddScalar(summary, "run/step_ms", measured.step_ms());
  if (measured.has_gpu_memory_mb()) {
    AddScalar(summary, "run/gpu_memory_mb", measured.gpu_memory_mb());
  }
  if (measured.has_gpu_utilization()) {
    AddScalar(summary, "run/gpu_utilization", measured.gpu_utilization());
  }
  if (measured.has_gpu_temperature_c()) {
    AddScalar(summary, "run/gpu_temperature_c", measured.gpu_temperature_c());
  }
  if (measured.has_gpu_power_w()) AddScalar(summary, "run/gpu_power_w", measured.gpu_power_w());
  AddScalar(summary, kIntervalTag, log.at().epoch());
  AddNamed(summary, "train", measured.scalars());
}

void AddScores(tensorboard::Summary& summary, const std::string& set,
               const events::Scores& scores) {
  AddScalar(summary, "loss/" + set, scores.loss());
  if (scores.has_accuracy()) AddScalar(summary, "accuracy/" + set, scores.accuracy());
  if (scores.has_top5_accuracy()) {  // of an older version
    AddScalar(summary, "accuracy/" + set + "_top5", scores.top5_accuracy());
  }
  AddNamed(summary, set, scores.scalars());
}

}  // namespace

const char* TagOf(const events::Event& event) {
  if (event.has_log()) return kIntervalTag;
  return event.evaluation().has_test() ? kTestLossTag : kValidationLossTag;
}

int64_t StepOf(const events::Event& event) {
  return event.has_log() ? event.log().at().step() : event.evaluation().at().step();
}

void AddScalars(tensorboard::Summary& summary, const events::Event& event) {
  if (event.has_log()) return AddInterval(summary, event.log());
  const events::Evaluation& evaluation = event.evaluation();
  if (evaluation.has_test()) AddScores(summary, "test", evaluation.test());
  if (evaluation.has_validation()) AddScores(summary, "validation", evaluation.validation());
}

}  // namespace muster
