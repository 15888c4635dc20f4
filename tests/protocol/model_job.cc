#include "tests/protocol/model_job.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>

#include "common/base/error.h"
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/config/job_size.h"
#include "common/link/protocol.h"
#include "common/model/hash_variables.h"
#include "tests/job/test_job.h"
#include "tests/ps/tree_sum_reference.h"

namespace muster::testing {
namespace {

// Powers of two, so that products are exact.
constexpr float kMomentum = 0.5F, kDecay = 0.5F;
// The slice with a non-finite loss or gradient in jobs that skip a step. Infinite rather than NaN,
// which does not compare equal to itself.
constexpr int64_t kBadSlice = 1;

config::Config ConfigOf(const Bounds& bounds) {
  config::Config config = SmallConfig(bounds.workers, bounds.slices);
  config.mutable_run()->set_steps(static_cast<uint32_t>(bounds.steps));
  config.mutable_run()->set_global_batch(bounds.slices * ModelJob::kSamplesPerSlice);
  if (bounds.hidden > 0) {
    config.mutable_model()->mutable_layer(0)->mutable_dense()->set_units(bounds.hidden);
  } else {
    // One layer of 48 floats: a chunk of 32 and one of 16.
    config.mutable_model()->mutable_layer()->DeleteSubrange(0, 2);
    config.mutable_cluster()->set_chunk_bytes(128);
  }
  config.mutable_cluster()->set_on_lost_worker(config::Cluster::REPLACE);
  config.mutable_cluster()->set_max_workers(bounds.workers +
                                            static_cast<uint32_t>(bounds.newcomers));
  config.mutable_server()->set_threads(1);
  // Time passes only in stalls, whose length is independent of this deadline.
  config.mutable_deadlines()->set_step_s(1e6);
  config.mutable_deadlines()->set_first_step_s(1e6);
  config.mutable_deadlines()->set_progress_s(1e6);
  config.mutable_deadlines()->set_silence_s(1e6);
  config.mutable_deadlines()->set_start_s(200);
  if (bounds.two_phases) config.mutable_optimizer()->set_clip_norm(1e30F);
  if (bounds.bad_loss >= 0 || bounds.bad_gradient >= 0) {
    config.mutable_run()->set_on_nonfinite(config::Run::SKIP_STEP);
  }
  if (bounds.momentum) {
    config.mutable_optimizer()->set_type(config::Optimizer::MOMENTUM);
    config.mutable_optimizer()->set_momentum(kMomentum);
  }
  if (bounds.average) config.mutable_optimizer()->set_ema_decay(kDecay);
  if (bounds.evaluates) {
    config.mutable_evaluation()->set_use_ema(bounds.average);
    config.mutable_evaluation()->set_every_steps(1);
    config.mutable_evaluation()->set_skip_final(false);
    config.mutable_evaluation()->set_batch(ModelJob::kBlockSize);
  }
  return config;
}

}  // namespace

ModelJob::ModelJob(const Bounds& bounds)
    : bounds_(bounds),
      config_(ConfigOf(bounds)),
      graph_(BuildGraph(config_.model(), InputShape(config_.data()))),
      job_(JobOf(TestToken())),
      chunks_(CutChunks(graph_.layout(), config_.cluster())) {
  MUSTER_CHECK(bounds.hidden > 0 || chunks_.size() == 2);
  const ClientOptions options =
      WorkerOptions(config_, "", 0, bounds.evaluates ? kBlocks * kBlockSize : 0);
  hello_ = options.hello;
  if (bounds.splits) hello_.set_validation_samples(kBlocks * kBlockSize);
  hello_.set_train_samples(config_.run().global_batch() * bounds.steps);
  hello_.set_token(TestToken());
  hello_.set_protocol_version(kProtocolVersion);
  plan_ = PlanSteps(config_, hello_.train_samples());
  MakeGradients();
  MUSTER_CHECK(config_.learning_rate().base() == 1);
  const std::vector<float> zeros(floats());
  moments_.push_back({.weights = zeros, .momentum = zeros, .average = zeros});
  for (int64_t step = 0; step < bounds.steps; ++step) {
    moments_.push_back(After(moments_.back(), step));
  }
  weights_hash_ = HashVariables(graph_.layout(), moments_.back().weights);
}

ModelJob::Moment ModelJob::After(const Moment& before, int64_t step) const {
  Moment next = before;
  if (step == bounds_.bad_loss || step == bounds_.bad_gradient) {
    ++next.skipped;
    return next;
  }
  next.skipped = 0;
  ++next.updates;
  const auto gradient = Gradient(step, Root(bounds_.slices));
  for (size_t i = 0; i < floats(); ++i) {
    const float kept = bounds_.momentum ? kMomentum * before.momentum[i] : 0;
    next.momentum[i] = kept + gradient[i];
    next.weights[i] = before.weights[i] - next.momentum[i];
    next.average[i] = kDecay * before.average[i] + (1 - kDecay) * next.weights[i];
  }
  return next;
}

double ModelJob::Loss(int64_t step, int64_t slice) const {
  if (step == bounds_.bad_loss && slice == kBadSlice) {
    return std::numeric_limits<double>::infinity();
  }
  return static_cast<double>(step + 1) + static_cast<double>(slice) / 8;
}

// The even elements of each variable hold a power of 16 for each slice, so that a sum names its
// slices. The sum of the odd ones depends on the order.
void ModelJob::MakeGradients() {
  const auto slices = static_cast<int64_t>(bounds_.slices);
  for (int64_t step = 0; step < bounds_.steps; ++step) {
    for (uint32_t level = 0; level <= Root(slices).level; ++level) {
      for (uint32_t index = 0; !Covers({level, index}, slices).empty(); ++index) {
        std::vector<float>& sum = gradients_[{step, {level, index}}];
        sum.resize(floats());
        for (const Variable& variable : graph_.layout().variables()) {
          for (size_t i = variable.offset; i < variable.offset + variable.count; ++i) {
            const auto value = [&](int64_t slice) {
              if (step == bounds_.bad_gradient && slice == kBadSlice) {
                return std::numeric_limits<float>::infinity();
              }
              return i % 2 == 0 && bounds_.hidden == 0
                         ? std::ldexp(1.0F, static_cast<int>(4 * slice + step))
                         : Rough(step, slice, i);
            };
            bool any;
            sum[i] = TreeSumOf(
                value, {level, index}, slices, [](int64_t) { return false; }, &any);
          }
        }
      }
    }
  }
}

std::span<const float> ModelJob::Gradient(int64_t step, const TreeNode& node) const {
  return gradients_.at({step, {node.level, node.index}});
}

std::string ModelJob::SlicesIn(float difference, int64_t step) const {
  std::string text;
  auto left = static_cast<int64_t>(std::ldexp(difference, static_cast<int>(-step)));
  for (int64_t slice = 0; slice < static_cast<int64_t>(bounds_.slices); ++slice, left /= 16) {
    if (left % 16 == 1) continue;
    text += fmt::format("; it includes slice {} {} times", slice, left % 16);
  }
  return text;
}

}  // namespace muster::testing
