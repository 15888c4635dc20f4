#include "common/config/without_effect.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/base/count_text.h"
#include "common/config/config.h"
#include "common/config/devices.h"
#include "common/config/job_facts.h"
#include "common/config/update_settings.h"
#include "common/config/variables_without_effect.h"

namespace muster {
namespace {

namespace pb = google::protobuf;
using Job = JobFacts;

struct Row {
  const char* key;
  std::string (*reason)(const Job&);  // "" where the setting has an effect
};

std::string When(bool without_effect, const char* reason) { return without_effect ? reason : ""; }
std::string WithoutEvaluation(const Job& job) {
  return When(!job.evaluates, "there is no evaluation");
}
std::string WithoutTrace(const Job& job) {
  return When(job.run().trace_file().empty(), "only with run.trace_file (--trace FILE)");
}
std::string WithoutTensorboard(const Job& job) {
  return When(!job.config.tensorboard().enabled(), "tensorboard.enabled is false");
}

std::string WithoutCheckpoints(const Job& job) {
  return When(job.config.checkpoint().keep_last() == 0, "checkpoint.keep_last is 0: none is kept");
}

std::string WithoutCards(const Job& job) {
  return When(!ParseDevices(job.config.worker().devices()).WantsCards(),
              "no cards are asked for (worker.devices, --devices)");
}

std::string WithoutReplacements(const Job& job) {
  return When(job.config.cluster().on_lost_worker() != config::Cluster::REPLACE,
              "only with cluster.on_lost_worker=REPLACE");
}
std::string WithAbort(const Job& job) {
  return When(job.config.cluster().on_lost_worker() == config::Cluster::ABORT,
              "cluster.on_lost_worker is ABORT");
}

std::string WithoutCuda(const Job& job) {
  if (job.config.worker().backend() == config::Worker::CUDA) return "";
  return WithoutCards(job);
}

constexpr Row kRows[] = {
    {"cluster.max_restarts", WithoutReplacements},
    {"cluster.restart_window_s", WithoutReplacements},
    {"cluster.min_workers", WithAbort},
    {"cluster.max_workers", WithAbort},
    {"cluster.shares",
     [](const Job& job) {
       const auto slices = static_cast<int64_t>(job.run().slices());
       const int64_t workers = job.config.cluster().workers();
       if (workers == 1) return std::string("one worker has all slices, until another joins");
       if (slices == 0 || workers == 0 || slices > workers) return std::string();
       return fmt::format("run.slices is {}, one for each worker: none can be moved",
                          FormatCount(slices));
     }},
    {"run.global_batch",
     [](const Job& job) {
       if (!job.plan || job.plan->global_batch <= job.plan->train_samples) return std::string();
       return fmt::format("the training set has {} images, and a step no more",
                          FormatCount(job.plan->train_samples));
     }},
    {"run.slices",
     [](const Job& job) {
       const int64_t batch = ResolveBatch(job.config).global_batch;
       const auto slices = static_cast<int64_t>(job.run().slices());
       if (slices <= batch) return std::string();
       return fmt::format("the global batch is {}: {} of the slices are empty", FormatCount(batch),
                          FormatCount(slices - batch));
     }},
    {"run.max_skipped_steps",
     [](const Job& job) {
       return When(job.run().on_nonfinite() != config::Run::SKIP_STEP,
                   "only with run.on_nonfinite=SKIP_STEP");
     }},
    {"run.max_restarts",
     [](const Job& job) {
       return When(job.config.checkpoint().keep_last() == 0,
                   "checkpoint.keep_last is 0: a lost server leaves nothing to go on from");
     }},
    {"run.skip_mismatched",
     [](const Job& job) {
       return When(job.run().initial_weights().empty(), "only with run.initial_weights");
     }},
    {"run.trace_first_step", WithoutTrace},
    {"run.trace_steps", WithoutTrace},
    {"cluster.encryption",
     [](const Job& job) {
       const auto transport = job.config.cluster().transport();
       return When(transport == config::Cluster::LOCAL || transport == config::Cluster::IPC,
                   "only TCP is encrypted, and cluster.transport allows none");
     }},
    {"server.io_threads",
     [](const Job& job) {
       return When(job.config.cluster().transport() == config::Cluster::LOCAL,
                   "there is no ZeroMQ with cluster.transport=LOCAL");
     }},
    {"worker.convolution",
     [](const Job& job) {
       const auto convolution = job.config.worker().convolution();
       if (convolution == config::Worker::GEMM || convolution == config::Worker::CUDNN) {
         if (std::string why = WithoutCuda(job); !why.empty()) return why;
       }
       return When(std::ranges::none_of(job.config.model().layer(),
                                        [](const auto& layer) { return layer.has_conv2d(); }),
                   "the network has no conv2d");
     }},
    {"worker.precision",
     [](const Job& job) {
       const bool fp32 = job.config.worker().precision() == config::Worker::FP32;
       return When(!fp32 && !WithoutCuda(job).empty(), "without a GPU the CPU computes in FP32");
     }},
    {"worker.soft_placement", WithoutCuda},
    {"worker.workers_per_gpu", WithoutCuda},
    {"worker.gpu_memory_fraction", WithoutCuda},
    {"checkpoint.every_epochs",
     [](const Job& job) {
       // 1 is what resolving fills in.
       return job.config.checkpoint().every_epochs() == 1 ? "" : WithoutCheckpoints(job);
     }},
    {"checkpoint.every_steps", WithoutCheckpoints},
    {"checkpoint.every_minutes", WithoutCheckpoints},
    {"checkpoint.keep_best",
     [](const Job& job) {
       if (job.config.checkpoint().keep_best() == 0) return std::string();
       return job.evaluates ? WithoutCheckpoints(job) : WithoutEvaluation(job);
     }},
    {"deadlines.progress_s", WithoutEvaluation},
    {"data.dir",
     [](const Job& job) {
       return When(!NeedsFiles(job.config.data()), "data.format SYNTHETIC reads no files");
     }},
    {"data.preprocess.brightness",
     [](const Job& job) {
       return When(job.config.data().preprocess().standardize(),
                   "standardize takes away again what it adds to all pixels");
     }},
    {"evaluation.batch", WithoutEvaluation},
    {"evaluation.confusion_matrix", WithoutEvaluation},
    {"evaluation.use_ema", WithoutEvaluation},
    {"evaluation.every_epochs",
     [](const Job& job) {
       const bool beyond = job.Epochs() && job.evaluation().every_epochs() > *job.Epochs();
       return beyond ? job.RunOf(job.Epochs(), "whole epochs") : "";
     }},
    {"evaluation.every_steps",
     [](const Job& job) {
       if (!job.has_test_images && job.evaluation().every_steps() > 0)
         return std::string("there are no test images");
       const bool beyond = job.Steps() && job.evaluation().every_steps() > *job.Steps();
       return beyond ? job.RunOf(job.Steps(), "steps") : "";
     }},
    {"evaluation.stop_at_accuracy",
     [](const Job& job) {
       return When(!job.EvaluatesBeforeTheEnd(), "no evaluation comes before the end of the run");
     }},
    {"evaluation.patience",
     [](const Job& job) {
       return job.evaluation().patience() > 0 ? job.WaitsTooLong(job.evaluation().patience()) : "";
     }},
    {"evaluation.min_delta",
     [](const Job& job) {
       return When(job.evaluation().patience() == 0, "only with evaluation.patience");
     }},
    {"learning_rate.type",
     [](const Job& job) {
       if (job.rate().type() != config::LearningRate::PLATEAU) return std::string();
       const std::string why = job.WaitsTooLong(job.rate().plateau_patience());
       return why.empty() ? why : why + ": the rate never falls";
     }},
    {"learning_rate.factor",
     [](const Job& job) {
       return When(job.rate().type() == config::LearningRate::PLATEAU &&
                       job.rate().end() >= job.rate().base(),
                   "learning_rate.end is its base");
     }},
    {"optimizer.decay_norm_and_bias",
     [](const Job& job) {
       return When(job.config.optimizer().weight_decay() == 0, "optimizer.weight_decay is 0");
     }},
    {"optimizer.decay_type",
     [](const Job& job) {
       config::Optimizer without = job.config.optimizer();
       without.clear_decay_type();
       const bool asked = DecayTypeOf(without) != job.config.optimizer().decay_type();
       return When(asked && !job.Decays(), "no variable has a weight decay");
     }},
    {"learning_rate.base_workers",
     [](const Job& job) {
       return When(job.rate().scaling() == config::LearningRate::NONE,
                   "only with learning_rate.scaling");
     }},
    {"learning_rate.warmup_start",
     [](const Job& job) {
       return When(job.rate().warmup_samples() == 0, "only with learning_rate.warmup_samples");
     }},
    {"learning_rate.warmup_samples",
     [](const Job& job) {
       if (job.rate().warmup_samples() == 0 || !job.AfterTheRun(job.rate().warmup_samples()))
         return std::string();
       return job.RunOf(job.Samples(), "images: the rate never gets to learning_rate.base, and ") +
              config::LearningRate::Type_Name(job.rate().type()) + " does not begin";
     }},
    {"tensorboard.histograms_every_steps", WithoutTensorboard},
    {"tensorboard.graph", WithoutTensorboard},
    {"tensorboard.hparams", WithoutTensorboard},
    {"tensorboard.config_text", WithoutTensorboard},
    {"tensorboard.images",
     [](const Job& job) {
       return job.evaluates ? WithoutTensorboard(job) : WithoutEvaluation(job);
     }},
    {"learning_rate.interval_samples",
     [](const Job& job) {
       const int64_t first = job.rate().warmup_samples() + job.rate().interval_samples();
       const bool beyond =
           job.rate().type() == config::LearningRate::STEP && job.AfterTheRun(first);
       return beyond ? job.RunOf(job.Samples(), "images: the rate never falls") : "";
     }},
};

struct Found {
  const pb::Message* message = nullptr;
  const pb::FieldDescriptor* field = nullptr;
};

// The setting of this path; no message if it, or what holds it, is not given.
Found Find(const config::Config& config, const std::string& path) {
  const pb::Message* at = &config;
  for (size_t begin = 0;;) {
    const size_t dot = path.find('.', begin);
    const pb::FieldDescriptor* field =
        at->GetDescriptor()->FindFieldByName(path.substr(begin, dot - begin));
    if (!at->GetReflection()->HasField(*at, field)) return {};
    if (dot == std::string::npos) return {at, field};
    at = &at->GetReflection()->GetMessage(*at, field);
    begin = dot + 1;
  }
}

void AddMilestones(const Job& job, std::vector<NoEffect>& all) {
  const auto& milestones = job.rate().milestone_samples();
  for (int i = 0; i < milestones.size(); ++i) {
    if (!job.AfterTheRun(milestones[i])) continue;
    all.push_back({.key = fmt::format("learning_rate.milestone_samples[{}]", i),
                   .value = std::to_string(milestones[i]),
                   .reason = job.RunOf(job.Samples(), "images")});
  }
}

}  // namespace

std::vector<NoEffect> WithoutEffect(const config::Config& config,
                                    std::optional<int64_t> train_samples) {
  Job job{.config = config, .plan = {}};
  bool images = true;  // for testing
  if (!NeedsFiles(config.data())) {
    train_samples = config.data().synthetic().train_samples();
    images = config.data().synthetic().test_samples() > 0;
  }
  if (train_samples && *train_samples > 0) job.plan = PlanSteps(config, *train_samples);
  job.has_test_images = images;
  job.evaluates = images && (!config.evaluation().skip_final() || job.EvaluatesBeforeTheEnd());

  std::vector<NoEffect> all;
  for (const Row& row : kRows) {
    const Found found = Find(config, row.key);
    if (found.message == nullptr || IsDefault(*found.message, found.field)) continue;
    const std::string reason = row.reason(job);
    if (!reason.empty()) all.push_back({row.key, ValueText(*found.message, found.field), reason});
  }
  AddMilestones(job, all);
  AddVariablesWithoutEffect(config.model(), all);
  return all;
}

}  // namespace muster
