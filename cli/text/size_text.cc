#include "cli/text/size_text.h"

#include <fmt/core.h>

#include "cli/text/units.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/config/hardware.h"
#include "common/config/job_size.h"

namespace muster {
namespace {

// Whether only the program knows the batch.
bool IsOfProgram(const config::Config& config) {
  return config.run().batch_case() == config::Run::BATCH_NOT_SET;
}

// Names the setting that makes the bits depend on the number of workers.
std::string FollowingText(const config::Config& config) {
  if (config.run().has_batch_per_worker()) {
    return fmt::format("run.batch_per_worker (not so with run.global_batch={})",
                       ResolveBatch(config).global_batch);
  }
  return "learning_rate.scaling=" +
         config::LearningRate::Scaling_Name(config.learning_rate().scaling());
}

// Warns of slices that are too small to fill a GPU, or returns "".
std::string SmallSlicesText(const config::Config& config) {
  if (config.worker().backend() != config::Worker::CUDA || IsOfProgram(config)) return "";
  const int64_t batch = ResolveBatch(config).global_batch;
  const int64_t slices = config.run().slices(), workers = config.cluster().workers();
  if (batch >= kLeastCardSamples * slices) return "";
  std::string advice;
  if (slices > workers && batch >= kLeastCardSamples * workers) {
    advice = fmt::format("run.slices={} or ", workers);
  }
  return fmt::format(
      "; fewer than {} samples in a slice leave a GPU partly idle: {}a batch of {} would fill it, "
      "with other bits",
      kLeastCardSamples, advice, FormatCount(kLeastCardSamples * slices));
}

// Describes what else the bits depend on if the CPU computes.
std::string OnProcessor(bool by_hand) {
  return fmt::format(
      "on the workers' instruction set{} and on the versions of oneDNN, the C library and Muster",
      by_hand ? ""
              : fmt::format(" ({} here)",
                            config::Server::InstructionSet_Name(HostInstructionSets().back())));
}

// What else the bits depend on if a GPU computes. The worker reports the GPU and its libraries
// after loading them (cli/job/header.h).
constexpr const char* kOnCard =
    "on the GPU model, its multiprocessors or MIG partition, and on the versions of CUDA, cuBLAS, "
    "cuDNN and Muster (shown when the workers have started)";

}  // namespace

std::string BatchText(const config::Config& config) {
  if (IsOfProgram(config)) return "as the program says";
  const BatchSizes batch = ResolveBatch(config);
  const int64_t workers = config.cluster().workers();
  std::string text = Plural(batch.global_batch, SampleNoun(config));
  if (workers == 1) return text + " (global_batch = batch_per_worker)";
  const bool even = batch.global_batch % workers == 0;
  return fmt::format(
      "{} (global_batch) = {} x {}{} (batch_per_worker)", text, Plural(workers, "worker"),
      even ? "" : "about ",
      even ? FormatCount(batch.global_batch / workers) : fmt::format("{:.1f}", batch.per_worker));
}

std::string SlicesText(const config::Config& config) {
  const uint32_t slices = config.run().slices(), workers = config.cluster().workers();
  std::string text = Plural(slices, "slice");
  if (slices % workers != 0) {
    text += fmt::format(", {} or {} per worker: workers with fewer wait for the others",
                        slices / workers, slices / workers + 1);
  }
  return text + SmallSlicesText(config);
}

std::string CoresText(const config::Config& config, int cores) {
  if (config.worker().backend() == config::Worker::CUDA) return "";  // GPUs compute
  const uint32_t workers = config.cluster().workers(), threads = config.worker().threads();
  const uint32_t slices = config.run().slices();
  const int busy = static_cast<int>(workers * threads);
  if (busy == cores) return "";
  if (busy > cores) {
    return fmt::format("{} x {} share {}", Plural(workers, "worker"), Plural(threads, "thread"),
                       Plural(cores, "core"));
  }
  std::string text = fmt::format("{} of {} compute", busy, cores);
  const uint32_t more = DefaultWorkers(slices, cores, threads);
  if (more > workers) {
    return fmt::format("{}; --workers {} would use {}{}", text, more, more * threads,
                       FollowsWorkers(config) ? "" : ", with the same bits");
  }
  const uint32_t all = static_cast<uint32_t>(cores) / threads;
  if (all <= workers) return text;
  return fmt::format(
      "{}; {}, so more workers would not be faster: --workers {} --slices {} would use {}, with "
      "other bits",
      text, Plural(slices, "slice"), all, all, all * threads);
}

std::vector<std::string> BitsTexts(const config::Config& config, bool by_hand) {
  std::vector<std::string> texts;
  const uint32_t slices = config.run().slices();
  if (FollowsWorkers(config)) {
    texts.push_back(
        fmt::format("the same in every run on {}; another number gives other bits, because of {}",
                    Plural(config.cluster().workers(), "worker"), FollowingText(config)));
  } else if (slices == 1) {
    texts.push_back("the same in every run; one slice allows one worker");
  } else {
    texts.push_back(
        fmt::format("the same in every run, and on 1 to {0} workers (run.slices={0})", slices));
  }
  const config::Worker& worker = config.worker();
  const bool on_card = worker.backend() == config::Worker::CUDA;
  const bool rounded = config.cluster().wire_dtype() != config::Cluster::FP32;
  const std::string precision =
      "worker.precision=" + config::Worker::Precision_Name(worker.precision());
  texts.push_back(fmt::format(
      "they depend on {}, run.slices={}, {}, worker.convolution={}{}, {}",
      IsOfProgram(config) ? "the program's batch"
      : config.run().has_batch_per_worker()
          ? fmt::format("run.batch_per_worker={}", config.run().batch_per_worker())
          : fmt::format("run.global_batch={}", config.run().global_batch()),
      slices,
      on_card ? precision
              : fmt::format("worker.threads={}{}", worker.threads(),
                            worker.precision() == config::Worker::FP32 ? "" : ", " + precision),
      config::Worker::Convolution_Name(worker.convolution()),
      rounded
          ? ", cluster.wire_dtype=" + config::Cluster::WireDtype_Name(config.cluster().wire_dtype())
          : "",
      on_card ? std::string(kOnCard) : OnProcessor(by_hand)));
  return texts;
}

}  // namespace muster
