// The training loop: slices, the tree of their sum, updates, evaluations.
#include "tests/oracle/oracle.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "common/base/error.h"
#include "common/base/memory.h"
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/config/job_size.h"
#include "common/link/wire_type.h"
#include "common/model/hash_variables.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/data/pipeline.h"
#include "worker/nn/plan_tower.h"
#include "worker/nn/tower.h"

namespace muster::oracle {
namespace {

constexpr double kPatience = 60;  // seconds, for a batch of the input pipeline

// The best accuracy and the number of evaluations since.
struct Best {
  std::optional<double> accuracy;
  int64_t evaluations_since = 0;

  void Add(double next, double min_delta) {
    if (!accuracy || next > *accuracy + min_delta) {
      *this = {next, 0};
    } else {
      ++evaluations_since;
    }
  }
};

class Run {
 public:
  explicit Run(const config::Config& config)
      : config_(config),
        data_(OpenDatasets(config.data(), config.run().seed())),
        graph_(BuildGraph(config.model(), InputShape(config.data()))),
        plan_(PlanSteps(config, data_.train->size())),
        wire_(WireTypeOf(config.cluster())),
        backend_(
            MakeCpuBackend(static_cast<int>(config.worker().threads()),
                           {.winograd = config.worker().convolution() != config::Worker::DIRECT})),
        tower_(graph_, *backend_, config.run().seed(), ClassWeights(config.data()),
               config.evaluation().flip()),
        on_worker_(graph_.arena_floats()),
        updater_(graph_.layout(), config.optimizer(),
                 InitialWeights(graph_.layout(), config.run().seed())) {
    backend_
        ->Enter();  // from here on denormal numbers are flushed to zero, as in servers and workers
    PlanTower(plan_, {Evaluated().size()}, config.evaluation().batch(), tower_);
    tower_.Allocate();
  }

  Result Train() {
    const auto batches = MakeTrainPipeline(*data_.train, {.plan = plan_,
                                                          .slices = {{0, plan_.slices}},
                                                          .seed = config_.run().seed(),
                                                          .data = config_.data()});
    while (result_.steps < plan_.total_steps && !stops_) {
      Step(*batches);
      ++result_.steps;
      if (IsDue()) Evaluate();
    }
    result_.weights_hash = HashVariables(graph_.layout(), updater_.weights());
    return result_;
  }

 private:
  void Step(BatchPipeline& batches) {
    const Batch batch = plan_.At(result_.steps);
    Send(updater_.weights());
    finite_ = true;
    const std::optional<Arena> gradient = SumBelow(Root(plan_.slices), batch, batches);
    for (const float g : gradient->floats()) finite_ = finite_ && std::isfinite(g);
    if (!finite_ && config_.run().on_nonfinite() == config::Run::SKIP_STEP) return;
    if (!finite_) throw Error(ExitCode::kNonfinite, "step {} is not finite", batch.step);
    const int64_t run_samples = plan_.At(plan_.total_steps).samples_before;
    updater_.Update(gradient->floats(), RateAt(config_.learning_rate(), config_.cluster().workers(),
                                               run_samples, batch.samples_before, reductions_));
  }

  // Sets the workers' copy of the weights, which may have 16 bits.
  void Send(std::span<const float> weights) {
    std::ranges::copy(weights, on_worker_.floats().begin());
    RoundToWire(wire_, on_worker_.floats());
  }

  // The gradient of the slices below a node: its left half plus its right half, each rounded as on
  // the wire. Nothing if they have no samples.
  std::optional<Arena> SumBelow(const TreeNode& node, const Batch& batch, BatchPipeline& batches) {
    if (Covers(node, plan_.slices).empty()) return std::nullopt;
    if (node.level == 0) return Slice(batch, batches);
    std::optional<Arena> left = SumBelow({node.level - 1, 2 * node.index}, batch, batches);
    std::optional<Arena> right = SumBelow({node.level - 1, 2 * node.index + 1}, batch, batches);
    if (!left || !right) return left ? std::move(left) : std::move(right);
    for (size_t i = 0; i < graph_.arena_floats(); ++i) left->floats()[i] += right->floats()[i];
    RoundToWire(wire_, left->floats());
    return left;
  }

  // The next slice's contribution to the gradient of the mean loss over the whole batch.
  std::optional<Arena> Slice(const Batch& batch, BatchPipeline& batches) {
    const PreparedBatch& slice = batches.Next(kPatience);
    if (slice.count == 0) return std::nullopt;
    LossSums sums;
    tower_.Forward(InputOf(slice), Mode::kTraining, on_worker_.floats(), batch.step, nullptr, sums);
    finite_ = finite_ && std::isfinite(sums.loss);
    Arena gradient(graph_.arena_floats());
    tower_.Backward(1.0f / static_cast<float>(batch.samples), on_worker_.floats(),
                    gradient.floats(), nullptr);
    RoundToWire(wire_, gradient.floats());
    return gradient;
  }

  static TowerInput InputOf(const PreparedBatch& batch) {
    return {.count = batch.count,
            .images = batch.images,
            .labels = batch.labels,
            .sample_ids = batch.sample_ids,
            .epoch = batch.epoch,
            .share = batch.share};
  }

  // Regular evaluations affect the run; the final one does not.
  bool IsRegular() const {
    const config::Evaluation& settings = config_.evaluation();
    const int64_t steps = settings.every_steps(),
                  epochs = settings.every_epochs() * plan_.StepsPerEpoch();
    return (steps > 0 && result_.steps % steps == 0) || (epochs > 0 && result_.steps % epochs == 0);
  }
  bool IsDue() const {
    if (result_.steps == plan_.total_steps) return !config_.evaluation().skip_final();
    return IsRegular();
  }

  void Evaluate() {
    const config::Evaluation& settings = config_.evaluation();
    const int64_t samples = Evaluated().size(),
                  blocks = (samples + settings.batch() - 1) / settings.batch();
    Send(settings.use_ema() ? updater_.average() : updater_.weights());
    const auto batches =
        MakeEvaluationPipeline(Evaluated(), config_.data(), settings.batch(), {0, blocks});
    double loss = 0;
    int64_t correct = 0;
    for (int64_t block = 0; block < blocks; ++block) {
      LossSums sums;
      tower_.Forward(InputOf(batches->Next(kPatience)), Mode::kInference, on_worker_.floats(),
                     -1 - result_.steps, nullptr, sums);
      loss += sums.loss;
      correct += sums.correct;
    }
    result_.loss = loss / static_cast<double>(samples);
    result_.accuracy = static_cast<double>(correct) / static_cast<double>(samples);
    if (IsRegular()) Decide();
  }

  // The set that decides.
  const Dataset& Evaluated() const {
    return data_.validation != nullptr ? *data_.validation : *data_.test;
  }

  void Decide() {
    const config::Evaluation& settings = config_.evaluation();
    const config::LearningRate& rate = config_.learning_rate();
    best_.Add(result_.accuracy, settings.min_delta());
    stops_ = (settings.has_stop_at_accuracy() && result_.accuracy >= settings.stop_at_accuracy()) ||
             (settings.patience() > 0 && best_.evaluations_since >= settings.patience());
    if (rate.type() != config::LearningRate::PLATEAU) return;
    best_of_plateau_.Add(result_.accuracy, rate.plateau_min_delta());
    if (best_of_plateau_.evaluations_since < rate.plateau_patience()) return;
    best_of_plateau_.evaluations_since = 0;
    ++reductions_;
  }

  const config::Config& config_;
  const Datasets data_;
  const Graph graph_;
  const StepPlan plan_;
  const WireType wire_;
  const std::unique_ptr<Backend> backend_;
  Tower tower_;
  Arena on_worker_;  // the workers' copy of the weights
  Updater updater_;
  Best best_, best_of_plateau_;
  int64_t reductions_ = 0;
  bool finite_ = true, stops_ = false;
  Result result_;
};

}  // namespace

Result Train(const config::Config& config) {
  if (!config.run().initial_weights().empty()) {
    throw Error(ExitCode::kUsage, "run.initial_weights: the oracle begins with random weights");
  }
  if (config.worker().backend() != config::Worker::CPU) {
    throw Error(ExitCode::kUsage, "worker.backend: the oracle computes on the CPU");
  }
  return Run(config).Train();
}

}  // namespace muster::oracle
