#include "cli/cluster/slurm_job.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
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

// The cores of each node: "2(x3),4" is 2, 2, 2, 4.
std::vector<uint32_t> CoresOfNodes(const Environment& environment) {
  const std::string variable = "SLURM_JOB_CPUS_PER_NODE";
  std::vector<uint32_t> cores;
  std::istringstream parts(TextIn(environment, variable));
  for (std::string part; std::getline(parts, part, ',');) {
    const std::vector<std::string> found = FirstMatch("^([0-9]{1,6})(\\(x([0-9]{1,5})\\))?$", part);
    if (found.empty()) {
      throw Error(ExitCode::kUsage, "{}={}: expected a list such as 2(x3),4", variable,
                  Shown(TextIn(environment, variable)));
    }
    const size_t times = found[3].empty() ? 1 : std::stoul(found[3]);
    cores.insert(cores.end(), times, static_cast<uint32_t>(std::stoul(found[1])));
  }
  return cores;
}

// What the user typed, such as a100:4 or a100:2,h100:2.
std::optional<uint32_t> TypedGpus(const Environment& environment, const std::string& variable) {
  const std::string text = TextIn(environment, variable);
  if (text.empty()) return std::nullopt;
  uint32_t sum = 0;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::vector<std::string> found = FirstMatch("^([^:]+:)?([0-9]{1,6})$", part);
    if (found.empty()) {
      throw Error(ExitCode::kUsage, "{}={}: expected a number of GPUs such as 4 or a100:4",
                  variable, Shown(text));
    }
    sum += static_cast<uint32_t>(std::stoul(found[2]));
  }
  return sum;
}

// SLURM_GPUS_ON_NODE is set on a node. In a shell on another host there is only what the user
// typed.
std::optional<uint32_t> GpusOf(const Environment& environment, const SlurmJob& job) {
  if (const auto all = TypedGpus(environment, "SLURM_GPUS")) return all;
  if (const auto here = NumberIn(environment, "SLURM_GPUS_ON_NODE", kMostInSlurm)) {
    return *here * job.nodes;
  }
  if (const auto each = TypedGpus(environment, "SLURM_GPUS_PER_NODE")) return *each * job.nodes;
  if (const auto each = TypedGpus(environment, "SLURM_GPUS_PER_TASK")) {
    return *each * job.tasks.value_or(1);
  }
  return std::nullopt;
}

// srun refuses a step whose tasks do not all get their cores. The user chose the cores for the
// job's tasks, so other numbers of workers may get fewer.
uint32_t CoresPerWorker(const SlurmJob& job, uint32_t workers) {
  uint32_t cores = std::max(1u, *job.cores_per_task);
  if (workers == job.tasks) return cores;
  const auto fits = [&] {
    uint64_t room = 0;
    for (const uint32_t node : job.node_cores) room += node / cores;
    return room >= workers;
  };
  while (cores > 1 && !fits()) --cores;
  return cores;
}

void CheckSize(const SlurmJob& job, const config::Config& config) {
  const uint32_t workers = config.cluster().workers();
  if (!job.node_cores.empty() && workers > job.cores) {
    throw Error(ExitCode::kUsage,
                "Slurm job {} has {} cores for {} workers; expected one for each: submit it with "
                "--ntasks-per-node={}, or use --workers {}",
                job.id, job.cores, workers, (workers + job.nodes - 1) / job.nodes, job.cores);
  }
  const config::Worker& worker = config.worker();
  const uint32_t gpus = job.gpus.value_or(0);
  if (worker.backend() != config::Worker::CUDA || gpus == 0) return;
  if (workers <= uint64_t{gpus} * worker.workers_per_gpu()) return;
  throw Error(ExitCode::kUsage,
              "Slurm job {} has {} GPUs for {} workers; expected at most {}, with "
              "worker.workers_per_gpu={}: use --workers {}, or --set worker.workers_per_gpu={}",
              job.id, gpus, workers, uint64_t{gpus} * worker.workers_per_gpu(),
              worker.workers_per_gpu(), gpus, (workers + gpus - 1) / gpus);
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
  return gpus.value_or(0) > 0 ? gpus : std::nullopt;
}

std::optional<SlurmJob> FindSlurmJob(const Environment& environment) {
  const std::string id = TextIn(environment, "SLURM_JOB_ID");
  if (id.empty()) return std::nullopt;
  const std::string step = TextIn(environment, "SLURM_STEP_ID");
  SlurmJob job{.id = id};
  job.in_srun = !step.empty() && step != kInteractiveStep;
  const uint32_t launches = NumberIn(environment, "SLURM_STEP_NUM_TASKS", kMostInSlurm).value_or(1);
  if (job.in_srun && launches > 1) {
    throw Error(
        ExitCode::kUsage,
        "srun has started {} launches in Slurm job {} (SLURM_STEP_NUM_TASKS), each of a run "
        "of its own; expected one, which starts the workers itself: leave out srun, or use "
        "--no-slurm",
        launches, id);
  }
  job.nodes = NumberIn(environment, "SLURM_JOB_NUM_NODES", kMostInSlurm).value_or(1);
  job.node_cores = CoresOfNodes(environment);
  job.cores = std::max(1u, std::accumulate(job.node_cores.begin(), job.node_cores.end(), 0u));
  job.tasks = NumberIn(environment, "SLURM_NTASKS", kMostInSlurm);
  try {
    job.gpus = GpusOf(environment, job);
  } catch (const Error&) {
    if (job.nodes > 1) throw;  // on one node the launcher looks for GPUs itself
  }
  job.cores_per_task = NumberIn(environment, "SLURM_CPUS_PER_TASK", kMostInSlurm);
  job.restarts = NumberIn(environment, "SLURM_RESTART_COUNT", kMostInSlurm).value_or(0);
  job.is_here = job.in_srun || (job.nodes == 1 && !TextIn(environment, "SLURMD_NODENAME").empty());
  return job;
}

void PlanForSlurm(const SlurmJob& job, bool has_cuda, config::Config& config) {
  config::Cluster& cluster = *config.mutable_cluster();
  if (cluster.transport() == config::Cluster::LOCAL ||
      cluster.transport() == config::Cluster::IPC) {
    throw Error(ExitCode::kUsage,
                "cluster.transport={} works on one host only, but {} has {} nodes; expected "
                "AUTO or TCP, or one node",
                config::Cluster::Transport_Name(cluster.transport()), job.name(), job.nodes);
  }
  if (!config.worker().program().empty()) {
    throw Error(ExitCode::kUsage,
                "worker.program: muster launch cannot start a program on other hosts of {} yet; "
                "expected a job of one node, or --no-slurm",
                job.name());
  }
  config::Worker& worker = *config.mutable_worker();
  if (const auto workers = job.Workers(); workers && !cluster.has_workers()) {
    cluster.set_workers(job.tasks ? *workers : *workers * worker.workers_per_gpu());
  }
  const bool no_gpus = worker.devices() == "cpu";
  worker.clear_devices();  // names GPUs of one host
  if (!worker.has_backend() && !no_gpus && has_cuda && job.gpus.value_or(0) > 0) {
    worker.set_backend(config::Worker::CUDA);
  }
  if (cluster.has_workers()) CheckSize(job, config);
}

std::vector<std::string> StepArguments(const SlurmJob& job, uint32_t workers,
                                       const StepFiles& files, const std::string& endpoint) {
  std::vector<std::string> words{
      fmt::format("--ntasks={}", workers),
      "--no-kill",             // a lost node ends its own tasks only,
      "--kill-on-bad-exit=0",  // a lost task itself only,
      "--wait=0",              // and a worker that leaves nobody
      "--mpi=none",
      "--export=ALL",  // even in a job of sbatch --export=NONE, for LD_LIBRARY_PATH
      "--input=all",
      fmt::format("--output={}/worker-%t.log", WithoutSymbols(files.logs)),
      fmt::format("--open-mode={}", files.append ? "append" : "truncate")};
  // Since 22.05 srun does not take it from the job.
  if (job.cores_per_task) {
    words.push_back(fmt::format("--cpus-per-task={}", CoresPerWorker(job, workers)));
  }
  words.insert(words.end(), {files.muster, "worker", files.config, "--rank", "AUTO", "--endpoint",
                             endpoint, "--token-file", "-"});
  return words;
}

std::vector<std::string> BatchOptions(const std::string& text) {
  const auto refuse = [&](const std::string& expected) {
    throw Error(ExitCode::kUsage, "--slurm {}: expected {}", ShellWord(Shown(text)), expected);
  };
  const std::vector<std::string> first = FirstMatch("^ *(-[^ ]+)", text);
  if (first.empty()) refuse("options of sbatch, such as \"-N 2 --ntasks-per-node 4\"");
  if (text.find_first_of("\n\r") != std::string::npos) refuse("one line");
  for (const char* const wrong : {"--wrap", "--array", "-a", "--test-only", "--parsable"}) {
    const std::string pattern = fmt::format("(^| ){}([ =0-9]|$)", wrong);
    if (FirstMatch(pattern.c_str(), text).empty()) continue;
    refuse(fmt::format("no {}: this submits one run of muster launch", wrong));
  }
  const std::optional<std::vector<std::string>> words = SplitCommandLine(text);
  if (!words) refuse("another quote");
  return *words;
}

uint32_t NodesAskedFor(const std::vector<std::string>& batch_options) {
  uint32_t nodes = 1;
  const std::string line = " " + Join(batch_options, " ") + " ";
  // The last one counts; "2-4" is at least 2.
  for (std::string rest = line; !rest.empty();) {
    const std::vector<std::string> found =
        FirstMatch(" (-N *|--nodes[= ])([0-9]{1,6})[^0-9].*", rest);
    if (found.empty()) break;
    nodes = static_cast<uint32_t>(std::stoul(found[2]));
    rest = found[0].substr(1 + found[1].size());
  }
  return nodes;
}

std::string BatchScript(const BatchJob& job) {
  // A script's later options count, so the user's come last. Without --no-kill Slurm ends the whole
  // job when it loses a node.
  return fmt::format(
      "#!/bin/bash\n"
      "#SBATCH --job-name={} {} --open-mode=append --no-kill\n"
      "#SBATCH {}\n"
      "exec {}\n",
      ShellWord(job.name), job.can_resume ? "--requeue" : "--no-requeue", job.options, job.launch);
}

std::vector<std::string> VariablesOfOuterJob(const Environment& environment) {
  std::vector<std::string> names;
  for (const auto& [name, value] : environment) {
    if (name.starts_with("SLURM_") && name != "SLURM_CONF") names.push_back(name);
  }
  return names;
}

}  // namespace muster
