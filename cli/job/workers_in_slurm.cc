#include "cli/job/workers_in_slurm.h"

#include <fmt/core.h>

#include <filesystem>

#include "cli/cluster/server_address.h"
#include "cli/gpu/job_gpus.h"
#include "cli/job/job_cards.h"
#include "cli/process/child_process.h"
#include "cli/text/console.h"
#include "cli/text/units.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "proto/config.pb.h"

namespace muster {

namespace fs = std::filesystem;

void CheckForSlurm(const LaunchArguments& arguments, const SlurmJob& job, config::Config config) {
  if (const std::string typed = TypedDevices(arguments.settings);
      arguments.wait_s > 0 || (!typed.empty() && config.worker().devices() != "cpu")) {
    throw Error(ExitCode::kUsage,
                "{}: in {} Slurm chooses the GPUs; expected options of sbatch such as "
                "--gpus-per-node, or --no-slurm",
                typed.empty() ? "--wait" : typed, job.name());
  }
  PlanForSlurm(job, /*has_cuda=*/false, config);
}

void PlanInSlurm(const LaunchArguments& arguments, config::Config& config) {
  CheckForSlurm(arguments, *arguments.slurm, config);
  if (ProgramInPath("srun").empty()) {
    throw Error(ExitCode::kFailure,
                "Slurm job {} needs srun to start the workers, but there is none in PATH; to start "
                "them on this host only, use --no-slurm",
                arguments.slurm->id);
  }
  const bool has_cuda = WhyNoGpuBackend(config, arguments.worker_program).empty();
  PlanForSlurm(*arguments.slurm, has_cuda, config);
}

bool IsRequeued(const LaunchArguments& arguments) {
  const bool started_anew = arguments.resume.empty() && !arguments.resume_or_begin &&
                            arguments.repeat == 0 && !arguments.in_place_of_run;
  if (!arguments.slurm || arguments.slurm->restarts == 0 || !started_anew) return false;
  if (!RunDirFor(arguments).empty()) return true;
  PrintResult(fmt::format(
      "Warning: Slurm has requeued job {}, but without --run-dir the run starts from the beginning",
      arguments.slurm->id));
  return false;
}

void WarnOfOneHost(const LaunchArguments& arguments) {
  if (!arguments.slurm || !arguments.slurm->in_srun || arguments.slurm->nodes == 1) return;
  PrintResult(
      fmt::format("Warning: srun runs this launch, so it uses this host only, not all {} nodes of "
                  "Slurm job {}; leave out srun to use them all",
                  arguments.slurm->nodes, arguments.slurm->id));
}

std::string StepText(const LaunchArguments& arguments) {
  if (!arguments.in_step()) return "";
  return fmt::format("on {} of Slurm job {}", Plural(int64_t{arguments.slurm->nodes}, "node"),
                     arguments.slurm->id);
}

// The nodes know this host by its name, which need not be an address here: a name of this host is
// often 127.0.1.1 in its own /etc/hosts. So the server listens on every interface.
WorkersByHand AddressesInSlurm(const config::Config& config) {
  const std::string& interface = config.cluster().interface();
  if (!interface.empty()) return {.endpoint = AddressOfInterface(interface).endpoint()};
  return {.endpoint = fmt::format("tcp://{}:*", HostName()), .bind = "tcp://*:*"};
}

void PlanStep(const LaunchArguments& arguments, JobPlan& plan) {
  if (plan.config_path != plan.dir->ConfigPath()) {
    throw Error(ExitCode::kUsage, "{} could not be written, but the nodes of Slurm job {} read it",
                plan.dir->ConfigPath(), arguments.slurm->id);
  }
  const WorkersByHand addresses = AddressesInSlurm(*plan.config);
  plan.endpoint = addresses.endpoint;
  plan.bind = addresses.bind;
  plan.srun = [&plan, job = *arguments.slurm,
               muster = arguments.worker_program](const std::string& endpoint) {
    std::vector<std::string> words =
        StepArguments(job, plan.config->cluster().workers(),
                      {.muster = fs::path(muster).parent_path() / "muster",
                       .config = plan.config_path,
                       .logs = plan.dir->path(),
                       .append = plan.goes_on()},
                      endpoint);
    words.insert(words.begin(), ProgramInPath("srun"));
    return words;
  };
}

}  // namespace muster
