// The GPUs of one job of `muster launch`: planned before anything starts, then taken, and held for
// as long as a process of the job lives.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/gpu/gpu.h"
#include "cli/gpu/gpu_plan.h"
#include "cli/gpu/take_gpus.h"
#include "proto/config_fwd.h"

namespace muster {

// What else decides which GPUs a job gets.
struct GpuTerms {
  std::string typed;   // worker.devices was given on the command line, in these words
  bool waits = false;  // --wait: for GPUs that are busy now
  // Why no worker could compute on a GPU (WhyNoGpuBackend), or "". A job that says nothing of
  // devices takes no GPUs then.
  std::string no_backend;
};

class JobGpus {
 public:
  // Takes a config that is not resolved yet. Throws Error(kUsage), and Error(kFailure) where there
  // is no GPU and the job or CUDA_VISIBLE_DEVICES names one, or the job has
  // worker.soft_placement=false, or where fewer are idle than its workers need.
  JobGpus(const config::Config& config, const std::string& config_path, const GpuTerms& terms);

  // Whether the job asks for GPUs, or would take idle ones.
  bool asked() const { return asked_; }
  // Whether there are GPUs to take, and for how many workers.
  bool wanted() const { return plan_.wish.has_value(); }
  uint32_t workers() const { return plan_.workers; }
  const std::string& origin() const { return origin_; }  // how they were asked for
  bool named() const { return named_; }                  // by index or UUID, in whatever way
  // Why nothing will compute on the GPUs that the job takes, in words; "" if the workers do.
  const std::string& unused() const { return unused_; }

  // See TakeGpus. Throws Error.
  void Take(const TakeOptions& options);

  // For the header: which GPUs and why, or why none. Empty where none were asked for.
  std::vector<std::string> Lines() const;
  // One for each rank; empty on the CPU.
  std::vector<WorkerPlace> Places() const;
  // Where a worker is to run that takes the place of this rank's, which has ended: as before,
  // unless the GPU is lost, and another one that the job may have is idle, which it takes then.
  WorkerPlace PlaceAgain(uint32_t rank);

 private:
  void TakeInsteadOf(size_t gpu);
  void CheckComputeModes() const;

  std::unique_ptr<GpuProbe> probe_;
  GpuPlan plan_;
  std::string origin_, unused_;
  bool asked_ = false, named_ = false;
  uint32_t workers_per_gpu_ = 1;
  TakenGpus taken_;
  std::map<size_t, std::unique_ptr<Ticket>> instead_;  // of GPUs taken in place of taken_.gpus[i]
};

// Why workers of this config cannot compute on a GPU: worker.backend=CPU, or no plugin beside
// muster-worker, where it would look for it. "" if they can.
std::string WhyNoGpuBackend(const config::Config& config, const std::string& worker_program);

// "GPU 2 (GPU-1b2c3d4e, NVIDIA H100, 80.0 GB)"
std::string GpuText(const Gpu& gpu);

}  // namespace muster
