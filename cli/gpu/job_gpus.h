// The GPUs of one job of `muster launch`: planned before anything starts, then locked, and held as
// long as a process of the job lives.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/gpu/gpu.h"
#include "cli/gpu/gpu_plan.h"
#include "cli/gpu/take_gpus.h"
#include "cli/process/child_process.h"
#include "proto/config_fwd.h"

namespace muster {

struct GpuTerms {
  std::string typed;   // the option that set worker.devices on the command line, or ""
  bool waits = false;  // --wait: wait for busy GPUs
  // Why no worker could compute on a GPU (WhyNoGpuBackend), or "". If set, the job takes no GPUs.
  std::string no_backend;
};

class JobGpus {
 public:
  // The GPUs of one of several hosts of a job with worker.backend=CUDA, for this number of workers.
  // Only Take finds that too few are idle. Throws as below.
  static std::unique_ptr<JobGpus> OfHost(config::Config config, uint32_t workers,
                                         const std::string& config_path);

  // `config` is not resolved yet. Throws Error(kUsage). Throws Error(kFailure) if no GPU can be
  // used although the job or CUDA_VISIBLE_DEVICES names one or worker.soft_placement is false, or
  // if fewer GPUs are idle than the workers need. Throws Error(kDeadline) if the driver hangs and
  // the job could use a GPU.
  JobGpus(const config::Config& config, const std::string& config_path, const GpuTerms& terms);

  // Whether the job requests GPUs, or would take idle ones.
  bool asked() const { return asked_; }
  // Whether there are GPUs to take.
  bool wanted() const { return plan_.wish.has_value(); }
  uint32_t workers() const { return plan_.workers; }     // number of workers for these GPUs
  const std::string& origin() const { return origin_; }  // how they were requested
  bool named() const { return named_; }  // by index or UUID, in the job or the environment

  // See TakeGpus. Throws Error.
  void Take(const TakeOptions& options);

  // Lines for the header: the GPUs with a reason, or why there are none. Empty if none were
  // requested.
  std::vector<std::string> Lines() const;
  // Returns a place for each rank; empty on the CPU.
  std::vector<WorkerPlace> Places() const;
  // Returns where to run the replacement of a worker that ended: on the same GPU. If that GPU is
  // lost, takes another idle GPU that the job may use.
  WorkerPlace PlaceAgain(uint32_t rank);

 private:
  void TakeInsteadOf(size_t gpu, GpuProbe& probe);
  void CheckComputeModes() const;

  std::unique_ptr<GpuProbe> probe_;  // until the GPUs are taken
  GpuPlan plan_;
  std::string origin_;
  bool asked_ = false, named_ = false;
  uint32_t workers_per_gpu_ = 1;
  TakenGpus taken_;
  std::map<size_t, std::unique_ptr<Ticket>> instead_;  // i → the ticket, if taken_.gpus[i] is new
};

// Starts the worker at this place. Without one (null), it sees all GPUs with worker.backend=CUDA,
// and otherwise none.
void PutWorker(const WorkerPlace* place, const config::Worker& config, ChildOptions& worker);

// Why workers of this config cannot compute on a GPU: worker.backend=CPU, or no plugin in the
// places where muster-worker looks for it. "" if they can; a program of the user needs no plugin.
std::string WhyNoGpuBackend(const config::Config& config, const std::string& worker_program);

// "GPU 2 (GPU-1b2c3d4e, NVIDIA H100, 80.0 GB)"
std::string GpuText(const Gpu& gpu);

}  // namespace muster
