#include "common/config/config_check.h"

#include <cmath>
#include <optional>

#include "common/base/error.h"
#include "common/base/join.h"
#include "common/config/batch_norm_check.h"
#include "common/config/build_graph.h"
#include "common/config/chunk_bytes.h"
#include "common/config/config.h"
#include "common/config/devices.h"
#include "common/config/for_types.h"
#include "common/config/job_size.h"
#include "common/config/number_range.h"
#include "common/config/update_settings.h"
#include "common/config/without_effect.h"
#include "common/graph/graph.h"
#include "common/plan/chunks.h"

namespace muster {
namespace {

namespace pb = google::protobuf;

class Checker {
 public:
  Checker(const std::string& file, const Locations& locations)
      : file_(file), locations_(locations) {}

  void CheckRanges(const pb::Message& message, const std::string& path) const;
  void CheckContradictions(const config::Config& config) const;
  // These want to know how large the job is; see ResolveJobSize.
  void CheckTrace(const config::Config& config) const;
  void CheckEffects(const config::Config& config) const;

 private:
  template <typename... Args>
  [[noreturn]] void Fail(const std::string& key, fmt::format_string<Args...> format,
                         Args&&... args) const {
    throw Error(ExitCode::kUsage, "{}: {}: {}", Where(key), key,
                fmt::format(format, std::forward<Args>(args)...));
  }

  // The place of the key, or of the nearest message around it that was written somewhere.
  std::string Where(std::string key) const {
    while (!key.empty()) {
      const auto found = locations_.find(key);
      if (found != locations_.end()) return found->second;
      const size_t cut = key.find_last_of(".[");
      key.resize(cut == std::string::npos ? 0 : cut);
    }
    return file_;
  }

  void CheckNumber(const pb::FieldDescriptor* field, const std::string& key, double value) const;
  void CheckType(const pb::Message& message, const pb::FieldDescriptor* field,
                 const std::string& key) const;
  void CheckOptimizer(const config::Config& config) const;
  void CheckLearningRate(const config::LearningRate& rate) const;
  void CheckData(const config::Data& data) const;
  void CheckPreprocess(const config::Data& data) const;
  void CheckEvaluation(const config::Config& config) const;
  void CheckCluster(const config::Cluster& cluster) const;
  void CheckDevices(const config::Worker& worker) const;
  void CheckBackend(const config::Worker& worker) const;

  const std::string& file_;
  const Locations& locations_;
};

double Number(const pb::Message& message, const pb::FieldDescriptor* field, int index) {
  const pb::Reflection* r = message.GetReflection();
  const bool list = field->is_repeated();
  switch (field->cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_INT64:
      return static_cast<double>(list ? r->GetRepeatedInt64(message, field, index)
                                      : r->GetInt64(message, field));
    case pb::FieldDescriptor::CPPTYPE_UINT64:
      return static_cast<double>(list ? r->GetRepeatedUInt64(message, field, index)
                                      : r->GetUInt64(message, field));
    case pb::FieldDescriptor::CPPTYPE_UINT32:
      return list ? r->GetRepeatedUInt32(message, field, index) : r->GetUInt32(message, field);
    case pb::FieldDescriptor::CPPTYPE_INT32:
      return list ? r->GetRepeatedInt32(message, field, index) : r->GetInt32(message, field);
    case pb::FieldDescriptor::CPPTYPE_FLOAT:
      return list ? r->GetRepeatedFloat(message, field, index) : r->GetFloat(message, field);
    case pb::FieldDescriptor::CPPTYPE_DOUBLE:
      return list ? r->GetRepeatedDouble(message, field, index) : r->GetDouble(message, field);
    default:
      return 0;
  }
}

void Checker::CheckNumber(const pb::FieldDescriptor* field, const std::string& key,
                          double value) const {
  const config::Limits& limits = field->options().GetExtension(config::limits);
  const bool ok = std::isfinite(value) && !(limits.has_min() && value < limits.min()) &&
                  !(limits.has_max() && value > limits.max()) &&
                  !(limits.has_above() && value <= limits.above()) &&
                  !(limits.has_below() && value >= limits.below());
  if (ok) return;
  // As it was typed: 0.1f is not 0.1 as a double.
  const bool single = field->cpp_type() == pb::FieldDescriptor::CPPTYPE_FLOAT;
  Fail(key, "expected {}, got {}", RangeText(*field),
       single ? fmt::format("{}", static_cast<float>(value)) : fmt::format("{}", value));
}

void Checker::CheckType(const pb::Message& message, const pb::FieldDescriptor* field,
                        const std::string& key) const {
  if (IsForType(message, *field)) return;
  // The place of an element, which is where a list is written.
  Fail(field->is_repeated() ? key + "[0]" : key, "contradicts type {}: it is for type {}",
       TypeName(message), Join(TypesOf(*field), ", "));
}

void Checker::CheckRanges(const pb::Message& message, const std::string& path) const {
  const pb::Descriptor* type = message.GetDescriptor();
  const pb::Reflection* reflection = message.GetReflection();
  for (int f = 0; f < type->field_count(); ++f) {
    const pb::FieldDescriptor* field = type->field(f);
    const std::string key = path + field->name();
    const int count = field->is_repeated() ? reflection->FieldSize(message, field)
                                           : reflection->HasField(message, field);
    if (count == 0 && field->options().GetExtension(config::limits).required()) {
      Fail(key, "missing: expected a value");
    }
    if (count > 0) CheckType(message, field, key);
    for (int i = 0; i < count; ++i) {
      const std::string element = field->is_repeated() ? fmt::format("{}[{}]", key, i) : key;
      if (field->message_type() != nullptr) {
        CheckRanges(field->is_repeated() ? reflection->GetRepeatedMessage(message, field, i)
                                         : reflection->GetMessage(message, field),
                    element + ".");
      } else if (field->cpp_type() != pb::FieldDescriptor::CPPTYPE_STRING &&
                 field->cpp_type() != pb::FieldDescriptor::CPPTYPE_BOOL &&
                 field->cpp_type() != pb::FieldDescriptor::CPPTYPE_ENUM) {
        CheckNumber(field, element, Number(message, field, i));
      }
    }
  }
}

void Checker::CheckOptimizer(const config::Config& config) const {
  const config::Optimizer& optimizer = config.optimizer();
  if (optimizer.type() == config::Optimizer::ADAMW &&
      DecayTypeOf(optimizer) != config::Optimizer::DECOUPLED) {
    Fail("optimizer.decay_type",
         "COUPLED contradicts type ADAMW, which is ADAM with decoupled decay: expected type ADAM, "
         "or no decay_type");
  }
  if (config.evaluation().use_ema() && !optimizer.has_ema_decay()) {
    Fail("evaluation.use_ema",
         "there is no moving average of the weights: expected optimizer.ema_decay with it");
  }
}

void Checker::CheckLearningRate(const config::LearningRate& rate) const {
  using config::LearningRate;
  const std::string key = "learning_rate.", type = LearningRate::Type_Name(rate.type());
  const int milestones = rate.milestone_samples_size();
  if (rate.type() == LearningRate::STEP && rate.has_interval_samples() == (milestones > 0)) {
    Fail(key + (milestones > 0 ? "milestone_samples[0]" : "interval_samples"),
         "{}: type STEP needs exactly one of interval_samples, milestone_samples",
         milestones > 0 ? "interval_samples is there too" : "missing");
  }
  if (rate.type() == LearningRate::EXPONENTIAL && !rate.has_interval_samples()) {
    Fail(key + "interval_samples", "missing: type {} needs it", type);
  }
  if (rate.type() == LearningRate::PLATEAU && rate.factor() >= 1) {
    Fail(key + "factor", "expected less than 1 for type PLATEAU, got {:g}", rate.factor());
  }
  if (rate.type() == LearningRate::PLATEAU && rate.end() > rate.base()) {
    Fail(key + "end", "expected at most base, {:g}, below which the rate is to fall, got {:g}",
         rate.base(), rate.end());
  }
  int64_t last = rate.warmup_samples();
  for (int i = 0; i < milestones; ++i) {
    if (rate.milestone_samples(i) <= last) {
      Fail(fmt::format("{}milestone_samples[{}]", key, i), "expected more than {}, {}, got {}",
           i == 0 ? "warmup_samples" : "the milestone before it", last, rate.milestone_samples(i));
    }
    last = rate.milestone_samples(i);
  }
  if (rate.has_total_samples() && rate.warmup_samples() >= rate.total_samples()) {
    Fail(key + "warmup_samples", "expected less than total_samples, {}, got {}",
         rate.total_samples(), rate.warmup_samples());
  }
}

void Checker::CheckData(const config::Data& data) const {
  const auto only_for = [&](bool given, const char* key, config::Data::Format format) {
    if (!given || data.format() == format) return;
    Fail(std::string("data.") + key, "has no meaning for format {}, only for {}",
         config::Data::Format_Name(data.format()), config::Data::Format_Name(format));
  };
  only_for(data.has_synthetic(), "synthetic", config::Data::SYNTHETIC);
  only_for(data.has_mnist(), "mnist", config::Data::MNIST);
  if (data.class_names_size() > 0 && data.class_names_size() != DataClasses(data)) {
    Fail("data.class_names", "expected {} names, one for each class, got {}", DataClasses(data),
         data.class_names_size());
  }
  constexpr int64_t kMostElements = int64_t{1} << 31;  // of an image: 8 GiB as floats
  if (StoredShape(data).elements() > kMostElements) {
    Fail("data.synthetic", "an image of {} has more than {} values", StoredShape(data).ToString(),
         kMostElements);
  }
}

void Checker::CheckEvaluation(const config::Config& config) const {
  const config::Evaluation& evaluation = config.evaluation();
  constexpr int64_t kMostClasses = 4096;  // 16.8 million numbers
  if (evaluation.confusion_matrix() && DataClasses(config.data()) > kMostClasses) {
    Fail("evaluation.confusion_matrix", "expected at most {} classes, got {}", kMostClasses,
         DataClasses(config.data()));
  }
  constexpr uint32_t kMostPredictions = 16384;  // in one message
  if (evaluation.confusion_matrix() && evaluation.batch() > kMostPredictions) {
    Fail("evaluation.batch", "expected at most {} with confusion_matrix, got {}", kMostPredictions,
         evaluation.batch());
  }
  const bool none =
      evaluation.every_epochs() == 0 && evaluation.every_steps() == 0 && evaluation.skip_final();
  if (evaluation.confusion_matrix() && none) {
    Fail("evaluation.confusion_matrix",
         "needs an evaluation: expected evaluation.every_epochs, every_steps or skip_final: false");
  }
  const bool no_images = config.data().format() == config::Data::SYNTHETIC &&
                         config.data().synthetic().test_samples() == 0;
  const bool none_before_the_end = evaluation.every_epochs() == 0 && evaluation.every_steps() == 0;
  const bool plateau = config.learning_rate().type() == config::LearningRate::PLATEAU;
  for (const auto& [key, wanted] :
       {std::pair{"evaluation.stop_at_accuracy", evaluation.has_stop_at_accuracy()},
        {"evaluation.patience", evaluation.patience() > 0},
        {"learning_rate.type", plateau},
        {"evaluation.confusion_matrix", evaluation.confusion_matrix()}}) {
    if (!wanted) continue;
    const std::string who = std::string(key) == "learning_rate.type" ? "PLATEAU needs" : "needs";
    if (none_before_the_end && std::string(key) != "evaluation.confusion_matrix") {
      Fail(key, "{} evaluations during the run: expected evaluation.every_epochs or every_steps",
           who);
    }
    if (no_images) Fail(key, "{} test images: expected data.synthetic.test_samples above 0", who);
  }
}

void Checker::CheckPreprocess(const config::Data& data) const {
  const config::Preprocess& p = data.preprocess();
  const std::string key = "data.preprocess.";
  if (p.has_crop_height() != p.has_crop_width()) {
    Fail(key + (p.has_crop_height() ? "crop_height" : "crop_width"),
         "expected crop_height and crop_width together");
  }
  const Shape stored = StoredShape(data);
  if (p.crop_height() > stored.height || p.crop_width() > stored.width) {
    Fail(key + "crop_height", "a crop of {}x{} is larger than the images, {}x{}", p.crop_height(),
         p.crop_width(), stored.height, stored.width);
  }
  if (p.crop_padding() > 0 && !p.has_crop_height()) {
    Fail(key + "crop_padding", "has no meaning without crop_height and crop_width");
  }
  if (p.contrast_min() > p.contrast_max()) {
    Fail(key + "contrast_min", "expected at most contrast_max, {}, got {}", p.contrast_max(),
         p.contrast_min());
  }
}

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

void Checker::CheckEffects(const config::Config& config) const {
  for (const NoEffect& setting : WithoutEffect(config)) {
    const auto given = locations_.find(setting.key);
    if (!setting.mistake || given == locations_.end() || !given->second.starts_with("--")) continue;
    Fail(setting.key, "has no effect: {}", setting.reason);
  }
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
void Checker::CheckBackend(const config::Worker& worker) const {
  const bool wants_cards =
      !worker.has_backend() && !worker.devices().empty() && worker.devices() != "cpu";
  const bool cuda = worker.backend() == config::Worker::CUDA || wants_cards;
  const auto convolution = worker.convolution();
  const std::string name = config::Worker::Convolution_Name(convolution);
  if (cuda && convolution == config::Worker::DIRECT) {
    Fail("worker.convolution", "{} is of worker.backend CPU: expected AUTO, GEMM or CUDNN", name);
  }
  if (!cuda && (convolution == config::Worker::GEMM || convolution == config::Worker::CUDNN)) {
    Fail("worker.convolution", "{} is of worker.backend CUDA: expected AUTO or DIRECT", name);
  }
  if (!cuda && worker.precision() != config::Worker::FP32) {
    Fail("worker.precision", "{} is of worker.backend CUDA: the CPU computes in FP32",
         config::Worker::Precision_Name(worker.precision()));
  }
  if (worker.autotune()) {
    Fail("worker.autotune",
         "is not there yet: algorithms are chosen by shape; leave it out or set it to false");
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

void Checker::CheckContradictions(const config::Config& config) const {
  const config::Run& run = config.run();
  if (run.length_case() == config::Run::LENGTH_NOT_SET) {
    Fail("run", "expected exactly one of epochs, steps");
  }
  if (run.batch_case() == config::Run::BATCH_NOT_SET) {
    Fail("run", "expected exactly one of global_batch, batch_per_worker");
  }
  if (run.has_slices() && run.slices() < config.cluster().workers()) {
    Fail("run.slices",
         "{0} cannot keep {1} workers busy, since no slice is shared: expected --workers {2}, "
         "which keeps the bits, or --set run.slices={1}, which gives others",
         run.slices() == 1 ? "1 slice" : fmt::format("{} slices", run.slices()),
         config.cluster().workers(),
         run.slices() == 1 ? "1" : fmt::format("{} or fewer", run.slices()));
  }
  if (!config.has_data()) Fail("data", "missing: expected data {{ format: … }}");
  if (!config.has_learning_rate())
    Fail("learning_rate", "missing: expected learning_rate {{ base: … }}");
  if (!config.has_model()) Fail("model", "missing: expected model {{ … }} or model_file: \"…\"");
  CheckOptimizer(config);
  CheckLearningRate(config.learning_rate());
  CheckData(config.data());
  CheckPreprocess(config.data());
  CheckEvaluation(config);
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

}  // namespace

std::string TraceTrouble(const config::Run& run, int64_t steps) {
  const int64_t first = run.trace_first_step(), last = first + run.trace_steps() - 1;
  if (last < steps) return "";
  return fmt::format(
      "expected steps of this run, 0 to {}, got {}: choose them with --trace-steps A-B", steps - 1,
      first == last ? fmt::format("{}", first) : fmt::format("{} to {}", first, last));
}

void CheckConfig(const config::Config& config, const std::string& file,
                 const Locations& locations) {
  const Checker checker(file, locations);
  checker.CheckRanges(config, "");
  checker.CheckContradictions(config);
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
  checker.CheckTrace(sized);
  checker.CheckEffects(sized);
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
