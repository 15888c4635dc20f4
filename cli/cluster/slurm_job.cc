#include "cli/cluster/slurm_job.h"

#include <fmt/core.h>

#include <algorithm>
#include <sstream>

#include "common/base/error.h"
#include "common/base/text.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

constexpr uint32_t kMostInSlurm = 1'000'000;
// The step of a salloc shell on a node (LaunchParameters=use_interactive_step). It holds no cores.
constexpr const char* kInteractiveStep = "4294967290";

std::string TextIn(const Environment& environment, const std::string& variable) {
  const auto found = environment.find(variable);
  return found == environment.end() ? "" : found->second;
}

// Adds up a list of Slurm: "2(x3),4" is 10.
uint32_t SumIn(const Environment& environment, const std::string& variable) {
  uint32_t sum = 0;
  std::istringstream parts(TextIn(environment, variable));
  for (std::string part; std::getline(parts, part, ',');) {
    const std::vector<std::string> found = FirstMatch("^([0-9]{1,6})(\\(x([0-9]{1,5})\\))?$", part);
    if (found.empty()) {
      throw Error(ExitCode::kUsage, "{}={}: expected a list such as 2(x3),4", variable,
                  Shown(TextIn(environment, variable)));
    }
    const uint32_t times = found[3].empty() ? 1 : static_cast<uint32_t>(std::stoul(found[3]));
    sum += static_cast<uint32_t>(std::stoul(found[1])) * times;
  }
  return sum;
}

// SLURM_GPUS_ON_NODE is set on a node. In a shell on another host there is only what the user
// typed, such as a100:4.
std::optional<uint32_t> GpusPerNode(Environment environment) {
  if (const auto here = NumberIn(environment, "SLURM_GPUS_ON_NODE", kMostInSlurm)) return here;
  std::string& typed = environment["SLURM_GPUS_PER_NODE"];
  typed = typed.substr(typed.rfind(':') + 1);
  return NumberIn(environment, "SLURM_GPUS_PER_NODE", kMostInSlurm);
}

// srun replaces %t and the like in names of files.
std::string WithoutSymbols(const std::string& path) {
  std::string text;
  for (const char c : path) text += c == '%' ? "%%" : std::string(1, c);
  return text;
}

}  // namespace

std::optional<uint32_t> SlurmJob::Workers() const {
  if (tasks) return tasks;
  if (gpus_per_node.value_or(0) > 0) return *gpus_per_node * nodes;
  return std::nullopt;
}

std::optional<SlurmJob> FindSlurmJob(const Environment& environment) {
  const std::string id = TextIn(environment, "SLURM_JOB_ID");
  const std::string step = TextIn(environment, "SLURM_STEP_ID");
  if (id.empty() || (!step.empty() && step != kInteractiveStep)) return std::nullopt;
  SlurmJob job{.id = id};
  job.nodes = NumberIn(environment, "SLURM_JOB_NUM_NODES", kMostInSlurm).value_or(1);
  job.cores = std::max(1u, SumIn(environment, "SLURM_JOB_CPUS_PER_NODE"));
  job.tasks = NumberIn(environment, "SLURM_NTASKS", kMostInSlurm);
  job.gpus_per_node = GpusPerNode(environment);
  job.cores_per_task = NumberIn(environment, "SLURM_CPUS_PER_TASK", kMostInSlurm);
  job.restarts = NumberIn(environment, "SLURM_RESTART_COUNT", kMostInSlurm).value_or(0);
  job.is_here = job.nodes == 1 && !TextIn(environment, "SLURMD_NODENAME").empty();
  return job;
}

void PlanForSlurm(const SlurmJob& job, bool has_cuda, config::Config& config) {
  config::Cluster& cluster = *config.mutable_cluster();
  if (cluster.transport() == config::Cluster::LOCAL ||
      cluster.transport() == config::Cluster::IPC) {
    throw Error(ExitCode::kUsage,
                "cluster.transport={} works on one host only, but Slurm job {} has {} nodes; "
                "expected AUTO or TCP, or --no-slurm",
                config::Cluster::Transport_Name(cluster.transport()), job.id, job.nodes);
  }
  if (!config.worker().program().empty()) {
    throw Error(ExitCode::kUsage,
                "worker.program: muster launch cannot start a program on the nodes of Slurm job {} "
                "yet; expected a job of one node, or --no-slurm",
                job.id);
  }
  if (const auto workers = job.Workers(); workers && !cluster.has_workers()) {
    cluster.set_workers(*workers);
  }
  config::Worker& worker = *config.mutable_worker();
  const bool no_gpus = worker.devices() == "cpu";
  worker.clear_devices();  // names GPUs of one host
  if (!worker.has_backend() && !no_gpus && has_cuda && job.gpus_per_node.value_or(0) > 0) {
    worker.set_backend(config::Worker::CUDA);
  }
}

std::vector<std::string> StepArguments(const SlurmJob& job, uint32_t workers,
                                       const StepFiles& files, const std::string& endpoint) {
  std::vector<std::string> words{
      fmt::format("--ntasks={}", workers),
      "--no-kill",             // a lost node ends its own tasks only,
      "--kill-on-bad-exit=0",  // a lost task itself only,
      "--wait=0",              // and a worker that leaves nobody
      "--mpi=none",
      "--input=all",
      fmt::format("--output={}/worker-%t.log", WithoutSymbols(files.logs)),
      fmt::format("--open-mode={}", files.append ? "append" : "truncate")};
  // Since 22.05 srun does not take it from the job.
  if (job.cores_per_task) {
    words.push_back(fmt::format("--cpus-per-task={}", *job.cores_per_task));
  }
  words.insert(words.end(), {files.muster, "worker", files.config, "--rank", "AUTO", "--endpoint",
                             endpoint, "--token-file", "-"});
  return words;
}

std::string BatchScript(const std::string& options, const std::string& name,
                        const std::string& launch) {
  const auto refuse = [&](const std::string& expected) {
    throw Error(ExitCode::kUsage, "--slurm {}: expected {}", ShellWord(Shown(options)), expected);
  };
  const std::vector<std::string> first = FirstMatch("^ *(-[^ ]+)", options);
  if (first.empty()) refuse("options of sbatch, such as \"-N 2 --gpus-per-node 4\"");
  if (options.find_first_of("\n\r") != std::string::npos) refuse("one line");
  for (const char* const wrong : {"--wrap", "--array", "-a", "--test-only", "--parsable"}) {
    const std::string pattern = fmt::format("(^| ){}([ =0-9]|$)", wrong);
    if (FirstMatch(pattern.c_str(), options).empty()) continue;
    refuse(fmt::format("no {}: this submits one run of muster launch", wrong));
  }
  // A script's later options count, so the user's come last. Without --no-kill Slurm ends the whole
  // job when it loses a node.
  return fmt::format(
      "#!/bin/bash\n"
      "#SBATCH --job-name={} --requeue --open-mode=append --no-kill\n"
      "#SBATCH {}\n"
      "exec {}\n",
      ShellWord(name), options, launch);
}

}  // namespace muster
