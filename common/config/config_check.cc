#include "common/config/config_check.h"

#include <optional>
#include <utility>

#include "common/base/error.h"
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/config/hardware.h"
#include "common/config/job_size.h"
#include "common/config/limits.h"
#include "common/graph/graph.h"
#include "common/plan/chunks.h"
#include "common/plan/count_limits.h"

namespace muster {
namespace {

void CheckTrace(const config::Config& config, ConfigErrors& errors) {
  const config::Run& run = config.run();
  if (run.trace_file().empty()) return;
  std::optional<int64_t> steps;
  if (run.has_steps()) steps = run.steps();
  if (!run.has_steps() && !NeedsFiles(config.data())) {
    steps = PlanSteps(config, config.data().synthetic().train_samples()).total_steps;
  }
  const std::string trouble = steps ? TraceTrouble(run, *steps) : "";
  if (!trouble.empty()) errors.Fail("run.trace_first_step", "{}", trouble);
}

// Only synthetic data has known sample counts. For files, the server learns them from the workers.
void CheckCounts(const config::Config& config, ConfigErrors& errors) {
  if (NeedsFiles(config.data())) return;
  const config::SyntheticData& made_up = config.data().synthetic();
  const std::string trouble = CountTrouble(PlanSteps(config, made_up.train_samples()),
                                           made_up.test_samples(), config.evaluation().batch());
  if (!trouble.empty()) errors.Fail("data.synthetic", "{}", trouble);
}

void CheckDevices(const config::Worker& worker, ConfigErrors& errors) {
  try {
    (void)ParseDevices(worker.devices());
  } catch (const Error& error) {
    errors.Fail("worker.devices", "{}", error.what());
  }
  const double share = worker.gpu_memory_fraction() * worker.workers_per_gpu();
  if (share > 1) {
    errors.Fail("worker.gpu_memory_fraction",
                "expected at most {:g}, the share of each of {} workers per GPU "
                "(worker.workers_per_gpu), got {:g}",
                1.0 / worker.workers_per_gpu(), worker.workers_per_gpu(),
                worker.gpu_memory_fraction());
  }
}

// worker.devices implies worker.backend CUDA unless worker.backend is set. GPU-only settings have
// no effect on the CPU and are accepted, so that one config serves both.
void CheckBackend(const config::Worker& worker, ConfigErrors& errors) {
  const bool wants_cards =
      !worker.has_backend() && !worker.devices().empty() && worker.devices() != "cpu";
  const bool cuda = worker.backend() == config::Worker::CUDA || wants_cards;
  if (cuda && worker.convolution() == config::Worker::DIRECT) {
    errors.Fail("worker.convolution",
                "DIRECT requires worker.backend CPU: expected AUTO, GEMM or CUDNN");
  }
}

void CheckCluster(const config::Cluster& cluster, ConfigErrors& errors) {
  if (cluster.has_workers() && cluster.min_workers() > cluster.workers()) {
    errors.Fail("cluster.min_workers", "{}: expected at most cluster.workers, which is {}",
                cluster.min_workers(), cluster.workers());
  }
  if (cluster.has_workers() && cluster.has_max_workers() &&
      cluster.max_workers() < cluster.workers()) {
    errors.Fail("cluster.max_workers", "{}: expected at least cluster.workers, which is {}",
                cluster.max_workers(), cluster.workers());
  }
  if (cluster.wire_dtype() == config::Cluster::FP32 ||
      cluster.transport() != config::Cluster::LOCAL) {
    return;
  }
  errors.Fail("cluster.wire_dtype",
              "{} contradicts cluster.transport LOCAL, which sends no tensors: expected FP32, or "
              "transport AUTO, IPC or TCP",
              config::Cluster::WireDtype_Name(cluster.wire_dtype()));
}

// The server learns the variables and the number of samples from the programs.
void CheckProgramJob(const config::Config& config, ConfigErrors& errors) {
  const auto refuse = [&](bool is_set, const char* key) {
    if (is_set) errors.Fail(key, "cannot be used with worker.program");
  };
  for (const auto& [is_set, key] :
       {std::pair(config.has_model() || config.has_model_file(), "model"),
        std::pair(config.has_data(), "data")}) {
    if (!is_set) continue;
    errors.Fail(key,
                "the program has its own: remove this section, or to train this network leave out "
                "the program (the command after --, or worker.program)");
  }
  refuse(config.evaluation().confusion_matrix(), "evaluation.confusion_matrix");
  refuse(config.evaluation().flip(), "evaluation.flip");
  refuse(config.evaluation().has_stop_at_accuracy(), "evaluation.stop_at_accuracy");
  refuse(!config.run().initial_weights().empty(), "run.initial_weights");
  const config::Worker::Precision precision = config.worker().precision();
  if (precision != config::Worker::FP32 && precision != config::Worker::FP16) {
    errors.Fail("worker.precision",
                "{} cannot be used with worker.program, which computes as it likes: expected FP16 "
                "for a loss scale, or none",
                config::Worker::Precision_Name(precision));
  }
  if (config.optimizer().type() == config::Optimizer::PROGRAM) {
    const auto leave = [&](bool is_set, const char* key) {
      if (is_set)
        errors.Fail(key, "cannot be used if the program updates the weights: do it there");
    };
    leave(config.optimizer().has_clip_value(), "optimizer.clip_value");
    leave(config.optimizer().has_clip_norm(), "optimizer.clip_norm");
    leave(config.optimizer().has_ema_decay(), "optimizer.ema_decay");
    leave(config.optimizer().weight_decay() > 0, "optimizer.weight_decay");
  }
  if (config.worker().program(0).empty()) {
    errors.Fail("worker.program", "expected a command, got an empty word");
  }
}

void CheckPresence(const config::Config& config, ConfigErrors& errors) {
  const config::Run& run = config.run();
  const bool says_run = HasProgram(config);  // it may say batch and length itself (Intake)
  if (run.length_case() == config::Run::LENGTH_NOT_SET && !says_run) {
    errors.Fail("run", "expected exactly one of epochs, steps");
  }
  if (run.batch_case() == config::Run::BATCH_NOT_SET && !says_run) {
    errors.Fail("run", "expected exactly one of global_batch, batch_per_worker");
  }
  if (!config.has_learning_rate() && !HasProgram(config))
    errors.Fail("learning_rate", "missing: expected learning_rate {{ base: … }}");
  if (HasProgram(config)) {
    CheckProgramJob(config, errors);
    return;
  }
  if (config.optimizer().type() == config::Optimizer::PROGRAM)
    errors.Fail("optimizer.type", "PROGRAM is only for a program that trains its own model");
  if (!config.has_data()) errors.Fail("data", "missing: expected data {{ format: … }}");
  if (!config.has_model()) {
    errors.Fail("model",
                "missing: expected model {{ … }} or model_file: \"…\"; a program that trains its "
                "own model is started with `muster launch -- COMMAND`");
  }
}

void CheckContradictions(const config::Config& config, ConfigErrors& errors) {
  const config::Run& run = config.run();
  if (run.has_slices() && run.slices() < config.cluster().workers()) {
    errors.Fail("run.slices",
                "{0} cannot keep {1} workers busy, because workers do not share slices: expected "
                "--workers {2}, which keeps the bits, or, for a new run, --set run.slices={1}, "
                "which changes them",
                run.slices() == 1 ? "1 slice" : fmt::format("{} slices", run.slices()),
                config.cluster().workers(),
                run.slices() == 1 ? "1" : fmt::format("{} or fewer", run.slices()));
  }
  CheckTraining(config, errors);
  CheckCluster(config.cluster(), errors);
  CheckDevices(config.worker(), errors);
  CheckBackend(config.worker(), errors);
}

// Returns the location of the layer that `message` names, or of the file if it names none. If two
// layers have the same name, the second is the mistake.
std::string PlaceOfLayer(const config::Model& model, const std::string& message,
                         const ConfigErrors& errors) {
  for (int i = model.layer_size() - 1; i >= 0; --i) {
    const bool names = message.starts_with(fmt::format("layer \"{}\"", model.layer(i).name()));
    if (names) return errors.Where(fmt::format("model.layer[{}]", i));
  }
  return errors.Where("");
}

[[noreturn]] void ThrowAtLayer(const config::Model& model, const Error& error,
                               const ConfigErrors& errors) {
  throw Error(error.code(), "{}: {}", PlaceOfLayer(model, error.what(), errors), error.what());
}

// Checks that a config whose targets are values has a loss for values. The graph cannot check it,
// because it does not know what the targets are.
void CheckLossOfValues(const config::Config& config, ConfigErrors& errors) {
  if (!HasValues(config.data()) || config.model().layer_size() == 0) return;
  const int last = config.model().layer_size() - 1;
  if (config.model().layer(last).has_mean_squared_error()) return;
  errors.Fail(fmt::format("model.layer[{}]", last),
              "expected mean_squared_error, because y holds values (data.npz.classes is 0): store "
              "y.astype(\"int64\") if they are classes");
  errors.ThrowIfAny();
}

Graph GraphOf(const config::Config& config, const ConfigErrors& errors) {
  try {
    return BuildGraph(config.model(), InputShape(config.data()));
  } catch (const Error& error) {
    ThrowAtLayer(config.model(), error, errors);
  }
}

// Checks every step that can be planned here. The last batch of an epoch depends on the size of the
// training set, which is known only for synthetic data before the workers report it.
void CheckSlices(const config::Config& config, const Graph& graph, const ConfigErrors& errors) {
  const bool known = !NeedsFiles(config.data());
  StepPlan plan = PlanSteps(config, known ? config.data().synthetic().train_samples()
                                          : ResolveBatch(config).global_batch);
  if (!known) plan.total_steps = 0;
  try {
    CheckBatchNorms(graph, plan);
  } catch (const Error& error) {
    ThrowAtLayer(config.model(), error, errors);
  }
}

void CheckChunks(const config::Config& config, const Graph& graph, const ConfigErrors& errors) {
  try {
    (void)CutChunks(graph.layout(), config.cluster());
  } catch (const Error& error) {
    throw Error(error.code(), "{}: {}", errors.Where("cluster.chunk_bytes"), error.what());
  }
}

// If part of the network could not be read, shapes are unknown, but the last layer can still be
// checked.
void CheckLoss(const config::Model& model, ConfigErrors& errors) {
  const std::string trouble = model.layer_size() == 0 ? "" : LossTrouble(model);
  if (trouble.empty()) return;
  const std::string last = fmt::format("model.layer[{}]", model.layer_size() - 1);
  errors.Add("model.layer.loss", fmt::format("{}: {}", errors.Where(last), trouble));
}

// Checks that the loss and the number of outputs suit the data.
void CheckOutputs(const config::Config& config, const Graph& graph, const ConfigErrors& errors) {
  const Layer& loss = graph.layers().back();
  const std::string where =
      errors.Where(fmt::format("model.layer[{}]", config.model().layer_size() - 1));
  if (HasValues(config.data()) != loss.is_of_values()) {
    throw Error(
        ExitCode::kUsage, "{}: layer \"{}\": expected {}, got {} of {}", where, loss.name,
        HasValues(config.data())
            ? "mean_squared_error of 1 output, because y holds values (data.npz.classes is 0)"
            : "at least 2 classes: mean_squared_error of 1 output is for values (in y of an NPZ, "
              "integers are classes: store y.astype(\"float32\") for values to predict)",
        loss.kind, graph.classes());
  }
  if (graph.classes() < DataClasses(config.data())) {
    throw Error(ExitCode::kUsage,
                "{}: layer \"{}\": expected at least {} logits, one per class of the data, got {}",
                where, loss.name, DataClasses(config.data()), graph.outputs());
  }
}

const Layer* FirstWithoutArea(const Graph& graph) {
  for (const Layer& layer : graph.layers()) {
    const Shape& shape = layer.input_shape;
    const bool pools = layer.running_mean >= 0 && !layer.frozen;
    if (pools && shape.height * shape.width == 1) return &layer;
  }
  return nullptr;
}

}  // namespace

std::string TraceTrouble(const config::Run& run, int64_t steps) {
  const int64_t first = run.trace_first_step(), last = first + run.trace_steps() - 1;
  if (last < steps) return "";
  return fmt::format(
      "expected steps of this run, 0 to {}, got {}: choose them with --trace-steps A-B", steps - 1,
      first == last ? fmt::format("{}", first) : fmt::format("{} to {}", first, last));
}

void CheckConfig(const config::Config& config, ConfigErrors& errors) {
  const size_t before = errors.noted();
  CheckRanges(config, errors);
  const bool in_range = errors.noted() == before;
  CheckPresence(config, errors);
  if (in_range) CheckContradictions(config, errors);
  if (!errors.empty()) {
    CheckLoss(config.model(), errors);
    errors.ThrowIfAny();
  }
  if (HasProgram(config)) return;
  CheckLossOfValues(config, errors);
  const Graph graph = GraphOf(config, errors);
  config::Config sized = config;
  ResolveJobSize(sized, AvailableCores());
  CheckCounts(sized, errors);
  CheckTrace(sized, errors);
  errors.ThrowIfAny();
  CheckSlices(sized, graph, errors);
  CheckChunks(config, graph, errors);
  CheckOutputs(config, graph, errors);
}

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
          "; choose a batch size that leaves a larger remainder, or fewer slices (run.slices)");
  }
}

}  // namespace muster
