#include "cli/gpu/job_gpus.h"

#include <fmt/core.h>
#include <sched.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "cli/gpu/usage.h"
#include "cli/gpu/visible_devices.h"
#include "cli/text/units.h"
#include "common/base/error.h"
#include "common/config/config.h"
#include "common/config/cuda_plugin_files.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

// The longest wait for the driver where a job can do without an answer.
constexpr double kShortSeconds = 10;
// The origin of a request that the user did not make.
constexpr const char* kByDefault = "the GPUs that the job takes by default";

GpuRequest RequestOf(const config::Config& config, const std::string& config_path,
                     const std::string& typed) {
  const config::Worker& worker = config.worker();
  GpuRequest request{.devices = ParseDevices(worker.devices()),
                     .origin = typed.empty() ? "worker.devices=" + worker.devices() : typed,
                     .typed = !typed.empty(),
                     .workers_per_gpu = worker.workers_per_gpu(),
                     .memory_fraction = worker.gpu_memory_fraction(),
                     .what = "launch " + config_path};
  if (config.cluster().has_workers()) request.workers = config.cluster().workers();
  request.by_default = request.devices.kind == DeviceWish::Kind::kNotSaid;
  if (request.by_default) request.origin = kByDefault;
  return request;
}

// Restricts a worker to this GPU and, of the cores that this process may use, to those near the
// GPU.
WorkerPlace PlaceOf(const Gpu& gpu) {
  WorkerPlace place{.gpu = gpu};
  place.environment.push_back("CUDA_VISIBLE_DEVICES=" + gpu.uuid);
  cpu_set_t ours;
  CPU_ZERO(&ours);
  if (::sched_getaffinity(0, sizeof ours, &ours) == 0) {
    for (const int core : gpu.cores) {
      if (core < CPU_SETSIZE && CPU_ISSET(core, &ours)) place.cores.push_back(core);
    }
  }
  // If the worker has no core on that node, the node's memory would only be farther away.
  if (!place.cores.empty() && !gpu.memory_nodes.empty()) place.memory_node = gpu.memory_nodes[0];
  return place;
}

}  // namespace

void PutWorker(const WorkerPlace* place, const config::Worker& config, ChildOptions& worker) {
  if (place == nullptr || place->gpu.uuid.empty()) {
    // With worker.backend=CUDA each worker takes the GPU of its number.
    if (config.backend() != config::Worker::CUDA) worker.environment.emplace_back(kSeesNoGpu);
    return;
  }
  worker.inherited_fds.insert(worker.inherited_fds.end(), place->lock_fds.begin(),
                              place->lock_fds.end());
  worker.environment.insert(worker.environment.end(), place->environment.begin(),
                            place->environment.end());
  worker.cores = place->cores;
  worker.memory_node = place->memory_node;
}

std::string WhyNoGpuBackend(const config::Config& config, const std::string& worker_program) {
  const config::Worker& worker = config.worker();
  if (worker.backend() == config::Worker::CUDA) return "";
  if (worker.has_backend()) return "worker.backend=CPU";
  if (HasProgram(config)) return "";  // it brings its own libraries
  const std::filesystem::path folder = std::filesystem::path(worker_program).parent_path();
  std::error_code ignored;
  for (const char* const file : kCudaPluginFiles) {
    for (const auto& place : {folder, folder / ".." / "lib"}) {
      if (std::filesystem::exists(place / file, ignored)) return "";
    }
  }
  return "this build has no CUDA backend (libmuster_cuda.so, docs/GPUS.md)";
}

std::string GpuText(const Gpu& gpu) {
  const auto errors = static_cast<int64_t>(gpu.ecc_errors.value_or(0));
  return fmt::format("GPU {} ({}, {}, {}){}", gpu.index, gpu.uuid.substr(0, 12), gpu.name,
                     FormatBytes(static_cast<double>(gpu.total_bytes)),
                     errors == 0 ? ""
                                 : fmt::format(", with {}: results may be wrong",
                                               Plural(errors, "uncorrected memory error")));
}

JobGpus::JobGpus(const config::Config& config, const std::string& config_path,
                 const GpuTerms& terms)
    : workers_per_gpu_(config.worker().workers_per_gpu()) {
  const config::Worker& worker = config.worker();
  const std::string& unused = terms.no_backend;
  GpuRequest request = RequestOf(config, config_path, terms.typed);
  origin_ = request.origin;
  named_ = request.devices.kind == DeviceWish::Kind::kNamed;
  if (request.by_default) {
    if (worker.has_backend() && !unused.empty()) return;
    if (worker.convolution() == config::Worker::DIRECT) return;  // exists only on the CPU
  } else if (!request.devices.WantsCards()) {
    return;
  }
  // This job computes on the CPU in any case. It only says which GPUs it leaves.
  const bool leaves_gpus = request.by_default && !unused.empty();
  std::unique_ptr<GpuProbe> probe =
      OpenNvml(kNvmlLibrary, leaves_gpus ? kShortSeconds : kDriverSeconds);
  GpuSnapshot seen;
  try {
    seen = probe->Look();
  } catch (const Error& error) {
    if (!leaves_gpus || error.code() != ExitCode::kDeadline) throw;
    asked_ = true;
    seen.none = error.what();
  }
  // With an explicit backend, the workers look for a GPU themselves. With BF16, soft_placement only
  // excludes devices that lack it.
  const bool must_have = !worker.soft_placement() && !worker.has_backend() &&
                         worker.precision() != config::Worker::BF16;
  asked_ |= !request.by_default || !seen.gpus.empty() || seen.failed || must_have;
  if (!asked_) return;
  if (leaves_gpus && !seen.gpus.empty()) {
    plan_.reason = fmt::format("{} here, but {}",
                               Plural(static_cast<int64_t>(seen.gpus.size()), "GPU"), unused);
  } else {
    const VisibleGpus visible = VisibleHere(seen);
    named_ |= !seen.gpus.empty() && visible.NamesMissing();
    if (request.by_default && !terms.waits) {
      request.idle = IdleGpus(seen, LockFolder::OfHost(), visible.uuids,
                              request.memory_fraction * request.workers_per_gpu);
      // Without GPUs of their own, these workers would compute on busy ones. Make taking GPUs fail
      // instead, with an error that names the users.
      if (request.idle->empty() && worker.backend() == config::Worker::CUDA) request.idle.reset();
    }
    plan_ = PlanGpus(request, seen, visible);
    if (wanted() && !unused.empty()) {
      plan_ = {.reason = fmt::format("{}, but {}", plan_.reason, unused)};
    }
  }
  const bool may_use_cpu = worker.soft_placement() && (!named_ || worker.has_soft_placement());
  if (!wanted() && !may_use_cpu) {
    throw Error(ExitCode::kFailure,
                "{}; to compute on the CPU, use --devices cpu, or allow both "
                "with --set worker.soft_placement=true",
                plan_.reason);
  }
  if (wanted()) probe_ = std::move(probe);
}

std::unique_ptr<JobGpus> JobGpus::OfHost(config::Config config, uint32_t workers,
                                         const std::string& config_path) {
  config.mutable_worker()->clear_devices();  // names GPUs of another host
  config.mutable_cluster()->set_workers(workers);
  return std::make_unique<JobGpus>(config, config_path, GpuTerms{.waits = true});
}

void JobGpus::Take(const TakeOptions& options) {
  MUSTER_CHECK(wanted());
  taken_ = TakeGpus(*probe_, LockFolder::OfHost(), *plan_.wish, options);
  probe_.reset();  // ends its process
  CheckComputeModes();
}

std::vector<std::string> JobGpus::Lines() const {
  if (!asked_) return {};
  std::vector<std::string> lines;
  if (taken_.gpus.empty()) {
    lines.push_back(plan_.reason + (wanted() ? "" : ": the workers compute on the CPU"));
    if (!plan_.hint.empty()) lines.push_back(plan_.hint);
    return lines;
  }
  for (const Gpu& gpu : taken_.gpus) lines.push_back(GpuText(gpu));
  lines.push_back(fmt::format("locked for this job; {}{}", plan_.reason,
                              taken_.reason.empty() ? "" : ": " + taken_.reason));
  if (!plan_.hint.empty()) lines.push_back(plan_.hint);
  return lines;
}

// In exclusive mode, a second worker on the GPU could not start, unless MPS serves all of them.
void JobGpus::CheckComputeModes() const {
  if (workers_per_gpu_ == 1) return;
  const char* const pipes = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  std::error_code ignored;
  const std::string folder = pipes != nullptr ? pipes : "/tmp/nvidia-mps";
  if (std::filesystem::exists(folder + "/control", ignored)) return;
  for (const Gpu& gpu : taken_.gpus) {
    if (!gpu.exclusive) continue;
    throw Error(ExitCode::kFailure,
                "GPU {} is in compute mode EXCLUSIVE_PROCESS: expected one worker on it, got "
                "worker.workers_per_gpu={}. Set it to 1, start MPS (nvidia-cuda-mps-control -d), "
                "or change the mode (nvidia-smi -i {} -c DEFAULT)",
                gpu.index, workers_per_gpu_, gpu.index);
  }
}

// Keeps the lost GPU if no other is available. Waits only briefly for other jobs to choose, because
// the launcher does not watch its job meanwhile.
void JobGpus::TakeInsteadOf(size_t gpu, GpuProbe& probe) {
  GpuWish wish{
      .pool = plan_.wish->pool, .free_share = plan_.wish->free_share, .what = plan_.wish->what};
  for (const Gpu& ours : taken_.gpus) std::erase(wish.pool, ours.uuid);
  if (wish.pool.empty()) return;
  try {
    TakenGpus other = TakeGpus(probe, LockFolder::OfHost(), wish, {.others_choose_s = 1});
    taken_.gpus[gpu] = std::move(other.gpus[0]);
    taken_.locks[gpu] = std::move(other.locks[0]);
    instead_[gpu] = std::move(other.ticket);
  } catch (const Error&) {
  }
}

WorkerPlace JobGpus::PlaceAgain(uint32_t rank) {
  const size_t gpu = rank / workers_per_gpu_;
  MUSTER_CHECK(gpu < taken_.gpus.size());
  try {
    const std::unique_ptr<GpuProbe> probe = OpenNvml(kNvmlLibrary, kShortSeconds);
    const GpuSnapshot seen = probe->Look();
    const Gpu* const now = seen.Find(taken_.gpus[gpu].uuid);
    if (now == nullptr || !now->trouble.empty()) TakeInsteadOf(gpu, *probe);
  } catch (const Error&) {  // the driver hangs: nothing says that another GPU would be better
  }
  return Places()[rank];
}

std::vector<WorkerPlace> JobGpus::Places() const {
  std::vector<WorkerPlace> places;
  for (size_t gpu = 0; gpu < taken_.gpus.size(); ++gpu) {
    WorkerPlace place = PlaceOf(taken_.gpus[gpu]);
    const auto instead = instead_.find(gpu);
    const Ticket& ticket = instead == instead_.end() ? *taken_.ticket : *instead->second;
    place.lock_fds = taken_.locks[gpu].fds();
    place.lock_fds.push_back(ticket.fd());
    for (uint32_t i = 0; i < workers_per_gpu_; ++i) places.push_back(place);
  }
  return places;
}

}  // namespace muster
