// Resolves values that depend on this machine, on the data's files, and on other settings.
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>

#include "common/base/resource_limits.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/config/job_size.h"
#include "common/config/update_settings.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// Beside GPUs, which compute, most cores are free to make batches and to update weights: the more
// workers, the more gradients there are to read. `cores` may be those of several hosts, but the
// server has only one.
void ResolveThreads(config::Config& config, int cores) {
  const bool cards = config.worker().backend() == config::Worker::CUDA;
  const int workers = static_cast<int>(config.cluster().workers());
  if (!HasProgram(config) && config.data().prefetch_threads() == 0) {
    const int threads = cards ? std::clamp(cores / workers - 2, 2, 16) : 1;
    config.mutable_data()->set_prefetch_threads(static_cast<uint32_t>(threads));
  }
  if (config.server().threads() == 0) {
    const int few = std::clamp(cores, 1, 4);
    const int most = std::min({cores / 4, 2 * workers + 2, 16});
    const int threads = cards ? std::max(few, most) : few;
    config.mutable_server()->set_threads(static_cast<uint32_t>(threads));
  }
}

}  // namespace

void ResolveConfig(config::Config& config, int cores) {
  if (!HasProgram(config)) RequireDataDir(config.data());
  ResolveForMachine(config, cores);
}

void ResolveForMachine(config::Config& config, int cores) {
  const auto absolute = [](const std::string& path) {
    return fs::absolute(path).lexically_normal().string();
  };
  config::Run& run = *config.mutable_run();
  if (!config.data().dir().empty()) config.mutable_data()->set_dir(absolute(config.data().dir()));
  if (const std::string& exclude = config.data().image_folder().exclude(); !exclude.empty()) {
    config.mutable_data()->mutable_image_folder()->set_exclude(absolute(exclude));
  }
  if (!run.trace_file().empty()) run.set_trace_file(absolute(run.trace_file()));
  if (!run.initial_weights().empty()) run.set_initial_weights(absolute(run.initial_weights()));
  ResolveJobSize(config, cores);
  ResolveOptimizer(*config.mutable_optimizer());
  config::Checkpoint& checkpoint = *config.mutable_checkpoint();
  const bool keeps = checkpoint.keep_last() > 0;
  if (keeps && checkpoint.every_case() == config::Checkpoint::EVERY_NOT_SET)
    checkpoint.set_every_epochs(1);
  ResolveThreads(config, cores);
  const bool zmq = config.cluster().transport() != config::Cluster::LOCAL;
  if (zmq && config.server().io_threads() == 0) {
    const auto most = std::min(config.cluster().workers(), 8u);
    config.mutable_server()->set_io_threads(std::clamp(static_cast<uint32_t>(cores) / 4, 1u, most));
  }
}

int AvailableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = std::max(1, CPU_COUNT(&set));
  const double quota = std::max(1.0, std::floor(ReadControlGroupLimits().cores));
  return quota < cores ? static_cast<int>(quota) : cores;
}

}  // namespace muster
