// What is known of a job before it begins: how long it is, when it evaluates.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/plan/step_plan.h"
#include "proto/config.pb.h"

namespace muster {

struct JobFacts {
  const config::Config& config;
  std::optional<StepPlan> plan;  // of a training set of known size
  bool evaluates = true;         // at least once
  bool has_test_images = true;

  const config::Run& run() const { return config.run(); }
  const config::Evaluation& evaluation() const { return config.evaluation(); }
  const config::LearningRate& rate() const { return config.learning_rate(); }

  // Nothing where it depends on a training set that is not known.
  std::optional<int64_t> Steps() const;
  std::optional<int64_t> Epochs() const;
  // At most, where the training set is not known.
  std::optional<int64_t> Samples() const;
  bool AfterTheRun(int64_t samples) const { return Samples() && samples >= *Samples(); }
  std::string RunOf(const std::optional<int64_t>& count, const char* noun) const;
  bool Decays() const;
  // As far as is known: where it cannot be excluded, it is true.
  bool EvaluatesBeforeTheEnd() const;
  // Those that are due by evaluation.every_…; nothing where the run's steps are not known.
  std::optional<int64_t> EvaluationsBeforeTheEnd() const;
  // The first evaluation is the best so far: only those after it can be waited for. Why waiting for
  // so many changes nothing.
  std::string WaitsTooLong(int64_t patience) const;
};

}  // namespace muster
