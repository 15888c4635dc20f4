#include "cli/job/bottleneck.h"

#include <fmt/core.h>

#include <algorithm>

#include "cli/text/units.h"
#include "common/config/config.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

struct StepPart {
  double share;
  std::string name, hint;
};

double ComputeMs(const events::Summary::Rank& rank) { return rank.parts().compute_ms(); }
double InputMs(const events::Summary::Rank& rank) { return rank.parts().input_ms(); }

// Blames one rank if its mean time explains at least half of the imbalance.
std::string LateText(const events::Summary& summary, const char* devices) {
  double mean = 0;
  for (const auto& rank : summary.ranks()) mean += ComputeMs(rank) / summary.ranks_size();
  const auto& slowest = *std::ranges::max_element(summary.ranks(), {}, ComputeMs);
  const events::Measured& measured = summary.measured();
  if (ComputeMs(slowest) - mean < 0.5 * measured.shares().imbalance() * measured.step_ms()) {
    return fmt::format(
        "the slowest rank varies, and the others wait for it: look for other load on the {}",
        devices);
  }
  return fmt::format(
      "rank {} computes for {} per step (mean of all ranks: {}), and the others wait for it: look "
      "for other load on its {}, or for slices or samples that do not divide evenly",
      slowest.rank(), FormatMilliseconds(ComputeMs(slowest)), FormatMilliseconds(mean), devices);
}

}  // namespace

bool CouldUseBf16(const config::Config& config) {
  return !HasProgram(config) && config.worker().precision() == config::Worker::FP32 &&
         __builtin_cpu_supports("avx512bf16");
}

std::string CrowdText(int64_t workers, int64_t threads_each, int64_t cores) {
  if (workers < 2 || cores < 1 || workers * threads_each <= cores) return "";
  if (workers > cores) {
    return fmt::format("{} share {}: use --workers {}", Plural(workers, "worker"),
                       Plural(cores, "core"), cores);
  }
  return fmt::format("{} with {} each share {}: use --set worker.threads={}",
                     Plural(workers, "worker"), Plural(threads_each, "thread"),
                     Plural(cores, "core"), cores / workers);
}

std::string Bottleneck(const events::Summary& summary, bool on_gpus, const std::string& crowd,
                       bool could_use_bf16) {
  const events::StepShares& shares = summary.measured().shares();
  const double overhead = shares.overhead(), input = shares.input(), imbalance = shares.imbalance();
  if (summary.ranks().empty() || summary.measured().step_ms() <= 0) return "";
  if (!shares.has_overhead() || !shares.has_input() || !shares.has_imbalance()) return "";
  for (const auto& rank : summary.ranks()) {
    if (!rank.parts().has_compute_ms() || !rank.parts().has_input_ms()) return "";
  }

  if (!crowd.empty() && !on_gpus) return "cores: " + crowd;

  std::string faster = on_gpus ? "more GPUs (--workers), worker.precision=TF32 or BF16"
                               : "more cores (worker.threads, workers)";
  if (could_use_bf16) faster += ", worker.precision=BF16";
  const char* const last = on_gpus || could_use_bf16 ? ", or" : " or";
  const StepPart compute{1 - overhead - imbalance, "compute",
                         faster + last + " a smaller network would help"};
  const StepPart others[] = {
      {imbalance, "slowest rank", LateText(summary, on_gpus ? "GPUs and cores" : "cores")},
      {input, "input pipeline",
       fmt::format("rank {} waits for its batches: try more data.prefetch_threads or less "
                   "preprocessing",
                   std::ranges::max_element(summary.ranks(), {}, InputMs)->rank())},
      {overhead - input, "server and communication", "try a larger batch or more server.threads"}};
  const StepPart& other = *std::ranges::max_element(others, {}, &StepPart::share);
  const StepPart& largest = other.share > compute.share ? other : compute;
  return largest.name + ": " + largest.hint;
}

}  // namespace muster
