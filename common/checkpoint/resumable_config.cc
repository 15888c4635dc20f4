#include "common/checkpoint/resumable_config.h"

#include <fmt/core.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <string_view>

#include "common/base/error.h"
#include "common/config/config.h"
#include "common/config/job_size.h"
#include "common/config/limits.h"
#include "common/config/update_settings.h"

namespace muster {
namespace {

namespace pb = google::protobuf;

using Values = std::map<std::string, std::string>;

// Settings that do not affect what a step computes: file locations, speed, length and output. A
// path that ends with a dot or a bracket includes everything below it.
constexpr std::string_view kFree[] = {"checkpoint.",
                                      "cluster.chunk_bytes",
                                      "cluster.encryption",
                                      "cluster.interface",
                                      "cluster.shares",
                                      "cluster.transport",
                                      "cluster.workers",
                                      "data.dir",
                                      "data.image_folder.exclude",
                                      "data.prefetch_batches",
                                      "data.prefetch_threads",
                                      "deadlines.",
                                      "evaluation.patience",
                                      "evaluation.stop_at_accuracy",
                                      "run.dir",
                                      "run.epochs",
                                      "run.max_restarts",
                                      "run.steps",
                                      "run.trace_file",
                                      "run.trace_first_step",
                                      "run.trace_steps",
                                      "server.",
                                      "tensorboard",
                                      "tensorboard.",
                                      "worker.check_gradients",
                                      "worker.cuda_graphs",
                                      "worker.devices",
                                      "worker.gpu_memory_fraction",
                                      "worker.gpu_sums",
                                      "worker.program[",
                                      "worker.soft_placement",
                                      "worker.workers_per_gpu"};
// Settings that may change the bits of the result but not its quality.
constexpr std::string_view kRounding[] = {"worker."};

template <size_t N>
bool IsOneOf(const std::string_view (&paths)[N], std::string_view path) {
  return std::ranges::any_of(paths, [&](std::string_view one) {
    return one.ends_with('.') || one.ends_with('[') ? path.starts_with(one) : path == one;
  });
}

void Flatten(const pb::Message& message, const std::string& path, Values& values) {
  std::vector<const pb::FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const pb::FieldDescriptor* field : fields) {
    const pb::Reflection* r = message.GetReflection();
    const int count = field->is_repeated() ? r->FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      std::string name = path.empty() ? field->name() : path + "." + field->name();
      if (field->is_repeated()) name += fmt::format("[{}]", i);
      if (field->message_type() != nullptr) {
        Flatten(field->is_repeated() ? r->GetRepeatedMessage(message, field, i)
                                     : r->GetMessage(message, field),
                name, values);
        values.try_emplace(name, "{}");  // records its presence: a layer without settings
      } else {
        pb::TextFormat::PrintFieldValueToString(message, field, field->is_repeated() ? i : -1,
                                                &values[name]);
      }
    }
  }
}

std::string ValueOr(const Values& values, const std::string& path) {
  const auto found = values.find(path);
  return found == values.end() ? "not set" : found->second;
}

void CheckLength(const config::Config& kept, const config::Config& now) {
  if (now.run().length_case() == config::Run::LENGTH_NOT_SET) return;  // only the program knows it
  const bool same = kept.run().has_steps() == now.run().has_steps() &&
                    kept.run().steps() == now.run().steps() &&
                    kept.run().epochs() == now.run().epochs();
  if (same || !RateFollowsLength(kept.learning_rate())) return;
  throw Error(ExitCode::kUsage,
              "cannot change the length of a resumed run: with learning_rate.type={} the learning "
              "rate of every step depends on it. Remove --epochs and --steps",
              config::LearningRate::Type_Name(kept.learning_rate().type()));
}

}  // namespace

std::map<std::string, std::string> FlatSettings(const config::Config& config) {
  Values values;
  Flatten(config, "", values);
  return values;
}

config::Config ParseKeptConfig(const std::string& text) {
  config::Config config;
  if (!pb::TextFormat::ParseFromString(text, &config)) {
    throw Error(ExitCode::kData,
                "cannot read the config in the checkpoint: it is from another version of muster");
  }
  return config;
}

bool RateFollowsLength(const config::LearningRate& rate) {
  config::Config config;
  *config.mutable_learning_rate() = rate;
  const auto& end = *config::LearningRate::descriptor()->FindFieldByName("total_samples");
  return !rate.has_total_samples() && UnmetNeed(config, rate, end).empty();
}

config::Config FrozenConfig(const config::Config& config) {
  config::Config frozen = config;
  if (config.run().batch_case() != config::Run::BATCH_NOT_SET)
    frozen.mutable_run()->set_global_batch(ResolveBatch(config).global_batch);
  if (!config.has_learning_rate()) return frozen;  // the program sets it
  config::LearningRate& rate = *frozen.mutable_learning_rate();
  rate.set_base(ScaledBase(config.learning_rate(), config.cluster().workers()));
  rate.clear_scaling();
  rate.clear_base_workers();
  return frozen;
}

std::string FrozenConfigText(const config::Config& config) {
  return ConfigText(FrozenConfig(config));
}

std::vector<std::string> CheckResumable(const std::string& kept, const config::Config& now) {
  // Fill in the defaults, because which ones a text spells out depends on the version that wrote it
  // and on other settings.
  config::Config then = WithDefaults(ParseKeptConfig(kept));
  config::Config here = WithDefaults(ParseKeptConfig(FrozenConfigText(now)));
  // What only the program knows is compared when it has joined (Intake).
  if (now.run().batch_case() == config::Run::BATCH_NOT_SET)
    here.mutable_run()->set_global_batch(then.run().global_batch());
  const bool is_open = HasProgram(now) && !now.run().has_drop_last();
  const bool dropped = then.run().drop_last(), drops = is_open ? dropped : here.run().drop_last();
  then.mutable_run()->set_drop_last(dropped);  // an older version does not say that it is false
  here.mutable_run()->set_drop_last(drops);
  // A program may ask for a loss scale (Intake).
  if (HasProgram(now) && here.worker().precision() == config::Worker::FP32)
    here.mutable_worker()->set_precision(then.worker().precision());
  // The optimizer of a program is compared when the program has joined (Intake).
  if (HasProgram(now) && !now.has_learning_rate()) *here.mutable_optimizer() = then.optimizer();
  CheckLength(then, here);
  const Values before = FlatSettings(then), after = FlatSettings(here);
  Values paths = before;
  paths.insert(after.begin(), after.end());
  std::vector<std::string> notes;
  for (const auto& [path, ignored] : paths) {
    const std::string was = ValueOr(before, path), is = ValueOr(after, path);
    if (was == is || IsOneOf(kFree, path)) continue;
    if (!IsOneOf(kRounding, path)) {
      throw Error(ExitCode::kUsage,
                  "{} was {} and is now {}: a resumed run must keep this setting; to change it, "
                  "start another run",
                  path, was, is);
    }
    notes.push_back(fmt::format("{} was {} and is now {}", path, was, is));
  }
  return notes;
}

}  // namespace muster
