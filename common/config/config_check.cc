#include "common/config/config_check.h"

#include <optional>

#include "common/base/error.h"
#include "common/config/batch_norm_check.h"
#include "common/config/build_graph.h"
#include "common/config/chunk_bytes.h"
#include "common/config/config.h"
#include "common/config/config_places.h"
#include "common/config/devices.h"
#include "common/config/job_size.h"
#include "common/config/range_check.h"
#include "common/config/training_check.h"
#include "common/graph/graph.h"
#include "common/plan/chunks.h"
#include "common/plan/count_limits.h"

namespace muster {
namespace {

class Checker : public ConfigPlaces {
 public:
  using ConfigPlaces::ConfigPlaces;

  void CheckPresence(const config::Config& config) const;
  void CheckContradictions(const config::Config& config) const;
  // These want to know how large the job is; see ResolveJobSize.
  void CheckTrace(const config::Config& config) const;
  void CheckCounts(const config::Config& config) const;

 private:
  void CheckCluster(const config::Cluster& cluster) const;
  void CheckDevices(const config::Worker& worker) const;
  void CheckBackend(const config::Worker& worker) const;
};

void Checker::CheckTrace(const config::Config& config) const {
  const config::Run& run = config.run();
  if (run.trace_file().empty()) return;
  std::optional<int64_t> steps;
  if (run.has_steps()) steps = run.steps();
  if (!run.has_steps() && !NeedsFiles(config.data())) {
    steps = PlanSteps(config, config.data().synthetic().train_samples()).total_steps;
  }
  const std::string trouble = steps ? TraceTrouble(run, *steps) : "";
  if (!trouble.empty()) Fail("run.trace_first_step", "{}", trouble);
}

// Of files the server knows, once it has heard of them, how much they hold.
void Checker::CheckCounts(const config::Config& config) const {
  if (NeedsFiles(config.data())) return;
  const config::SyntheticData& made_up = config.data().synthetic();
  const std::string trouble = CountTrouble(PlanSteps(config, made_up.train_samples()),
                                           made_up.test_samples(), config.evaluation().batch());
  if (!trouble.empty()) Fail("data.synthetic", "{}", trouble);
}

void Checker::CheckDevices(const config::Worker& worker) const {
  try {
    (void)ParseDevices(worker.devices());
  } catch (const Error& error) {
    Fail("worker.devices", "{}", error.what());
  }
  const double share = worker.gpu_memory_fraction() * worker.workers_per_gpu();
  if (share > 1) {
    Fail("worker.gpu_memory_fraction",
         "expected at most {:g}, the share of each of {} workers of a card "
         "(worker.workers_per_gpu), got {:g}",
         1.0 / worker.workers_per_gpu(), worker.workers_per_gpu(), worker.gpu_memory_fraction());
  }
}

// Cards that are asked for are computed on, unless worker.backend says otherwise.
// What only GPUs can do has no effect on the CPU, and is not refused: one config is for both.
void Checker::CheckBackend(const config::Worker& worker) const {
  const bool wants_cards =
      !worker.has_backend() && !worker.devices().empty() && worker.devices() != "cpu";
  const bool cuda = worker.backend() == config::Worker::CUDA || wants_cards;
  if (cuda && worker.convolution() == config::Worker::DIRECT) {
    Fail("worker.convolution", "DIRECT is of worker.backend CPU: expected AUTO, GEMM or CUDNN");
  }
}

void Checker::CheckCluster(const config::Cluster& cluster) const {
  if (cluster.has_workers() && cluster.min_workers() > cluster.workers()) {
    Fail("cluster.min_workers", "{}: expected at most cluster.workers, which is {}",
         cluster.min_workers(), cluster.workers());
  }
  if (cluster.has_workers() && cluster.has_max_workers() &&
      cluster.max_workers() < cluster.workers()) {
    Fail("cluster.max_workers", "{}: expected at least cluster.workers, which is {}",
         cluster.max_workers(), cluster.workers());
  }
  if (cluster.wire_dtype() == config::Cluster::FP32 ||
      cluster.transport() != config::Cluster::LOCAL) {
    return;
  }
  Fail("cluster.wire_dtype",
       "{} contradicts cluster.transport LOCAL, over which no tensor travels: expected FP32, or "
       "transport AUTO, IPC or TCP",
       config::Cluster::WireDtype_Name(cluster.wire_dtype()));
}

void Checker::CheckPresence(const config::Config& config) const {
  const config::Run& run = config.run();
  if (run.length_case() == config::Run::LENGTH_NOT_SET) {
    Fail("run", "expected exactly one of epochs, steps");
  }
  if (run.batch_case() == config::Run::BATCH_NOT_SET) {
    Fail("run", "expected exactly one of global_batch, batch_per_worker");
  }
  if (!config.has_data()) Fail("data", "missing: expected data {{ format: … }}");
  if (!config.has_learning_rate())
    Fail("learning_rate", "missing: expected learning_rate {{ base: … }}");
  if (!config.has_model()) Fail("model", "missing: expected model {{ … }} or model_file: \"…\"");
}

void Checker::CheckContradictions(const config::Config& config) const {
  const config::Run& run = config.run();
  if (run.has_slices() && run.slices() < config.cluster().workers()) {
    Fail("run.slices",
         "{0} cannot keep {1} workers busy, since no slice is shared: expected --workers {2}, "
         "which keeps the bits, or --set run.slices={1}, which gives others",
         run.slices() == 1 ? "1 slice" : fmt::format("{} slices", run.slices()),
         config.cluster().workers(),
         run.slices() == 1 ? "1" : fmt::format("{} or fewer", run.slices()));
  }
  CheckTraining(config, *this);
  CheckCluster(config.cluster());
  CheckDevices(config.worker());
  CheckBackend(config.worker());
}

// What is wrong with every step. Of an epoch's last batch the server knows, once it has heard of
// the training set, unless that is made up.
void CheckSlices(const config::Config& config, const Graph& graph, const std::string& file) {
  const bool known = !NeedsFiles(config.data());
  StepPlan plan = PlanSteps(config, known ? config.data().synthetic().train_samples()
                                          : ResolveBatch(config).global_batch);
  if (!known) plan.total_steps = 0;
  try {
    CheckBatchNorms(graph, plan);
  } catch (const Error& error) {
    throw Error(error.code(), "{}: {}", file, error.what());
  }
}

// Without all of the network its shapes are not known. Whether it ends in a loss is.
void NoteLossTrouble(const config::Model& model, const ConfigPlaces& places, ConfigErrors& errors) {
  const std::string trouble = model.layer_size() == 0 ? "" : LossTrouble(model);
  if (trouble.empty()) return;
  const std::string last = fmt::format("model.layer[{}]", model.layer_size() - 1);
  errors.Add("model.layer.loss", fmt::format("{}: {}", places.Where(last), trouble));
}

}  // namespace

std::string TraceTrouble(const config::Run& run, int64_t steps) {
  const int64_t first = run.trace_first_step(), last = first + run.trace_steps() - 1;
  if (last < steps) return "";
  return fmt::format(
      "expected steps of this run, 0 to {}, got {}: choose them with --trace-steps A-B", steps - 1,
      first == last ? fmt::format("{}", first) : fmt::format("{} to {}", first, last));
}

void CheckConfig(const config::Config& config, const std::string& file, const Locations& locations,
                 ConfigErrors& errors) {
  const Checker checker(file, locations, errors);
  const size_t before = errors.noted();
  CheckRanges(config, checker);
  const bool in_range = errors.noted() == before;
  checker.CheckPresence(config);
  if (in_range) checker.CheckContradictions(config);
  if (!errors.empty()) {
    NoteLossTrouble(config.model(), checker, errors);
    errors.ThrowIfAny();
  }
  Graph graph = [&] {
    try {
      return BuildGraph(config.model(), InputShape(config.data()));
    } catch (const Error& error) {
      // The layer's own place, where there is one.
      const std::string message = error.what();
      for (int i = 0; i < config.model().layer_size(); ++i) {
        const std::string quoted = fmt::format("layer \"{}\"", config.model().layer(i).name());
        const auto found = locations.find(fmt::format("model.layer[{}]", i));
        if (message.starts_with(quoted) && found != locations.end()) {
          throw Error(error.code(), "{}: {}", found->second, message);
        }
      }
      throw Error(error.code(), "{}: {}", file, message);
    }
  }();
  config::Config sized = config;
  ResolveJobSize(sized, AvailableCores());
  checker.CheckCounts(sized);
  checker.CheckTrace(sized);
  errors.ThrowIfAny();
  CheckSlices(sized, graph, file);
  try {
    (void)CutChunks(graph.layout(), config.cluster());
  } catch (const Error& error) {
    const auto found = locations.find("cluster.chunk_bytes");
    throw Error(error.code(), "{}: {}", found == locations.end() ? file : found->second,
                error.what());
  }
  if (graph.classes() < DataClasses(config.data())) {
    throw Error(ExitCode::kUsage,
                "{}: layer \"{}\": expected at least {} logits, one per class of "
                "the data, got {}",
                file, graph.layers().back().name, DataClasses(config.data()), graph.classes());
  }
}

}  // namespace muster
