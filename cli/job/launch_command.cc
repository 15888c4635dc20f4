#include "cli/job/launch_command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>

#include "cli/job/complete_run.h"
#include "cli/job/job_cards.h"
#include "cli/job/memory_check.h"
#include "cli/job/repeat.h"
#include "cli/job/resume_run.h"
#include "cli/job/run_job.h"
#include "cli/job/workers_in_slurm.h"
#include "cli/job/workers_over_ssh.h"
#include "cli/model/model_source.h"
#include "cli/process/child_process.h"
#include "cli/text/console.h"
#include "cli/text/units.h"
#include "cli/trace/merge.h"
#include "common/base/error.h"
#include "common/base/resource_limits.h"
#include "common/base/text.h"
#include "common/config/build_graph.h"
#include "common/config/config_check.h"
#include "common/config/data_format.h"
#include "common/config/hardware.h"
#include "common/config/job_size.h"
#include "common/config/resolved.h"
#include "common/graph/graph.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

void CheckPrograms(const LaunchArguments& arguments) {
  for (const std::string& program : {arguments.server_program, arguments.worker_program}) {
    if (::access(program.c_str(), X_OK) == 0) continue;
    throw Error(ExitCode::kFailure,
                "{}: {}; it must be next to muster: build or install all of Muster", program,
                ErrorText(errno));
  }
}

// The absolute path of the user's program, as a shell finds it.
std::string FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (::access(name.c_str(), X_OK) == 0 && !fs::is_directory(name)) return fs::absolute(name);
    throw Error(ExitCode::kUsage, "worker.program {}: {}", name,
                fs::is_directory(name) ? "it is a directory" : ErrorText(errno));
  }
  if (std::string path = ProgramInPath(name); !path.empty()) return path;
  throw Error(ExitCode::kUsage, "worker.program {}: there is no such program in PATH{}", name,
              fs::exists(name) ? fmt::format("; did you mean ./{}?", name) : "");
}

// Checks the data before any process starts: an error is then reported once, with nothing to clean
// up. A run reads its data many times, so reading them once more costs little.
DataCount CheckData(const LaunchArguments& arguments, const PreparedJob& job) {
  if (!arguments.count_data || HasProgram(job.config)) return {};
  const config::Config& config = job.config;
  const config::SyntheticData& made_up = config.data().synthetic();
  DataCount data{.train = made_up.train_samples(), .test = made_up.test_samples()};
  if (NeedsFiles(config.data()) || config.data().validation_fraction() > 0) {
    data = arguments.count_data(config);
    if (!data.problem.empty()) throw Error(data.code, data.problem);
  }
  return data;
}

// Only a program knows the number of its steps.
void CheckTracedSteps(const config::Config& config, const DataCount& data) {
  if (config.run().trace_file().empty() || HasProgram(config) || data.train <= 0) return;
  const std::string trouble = TraceTrouble(config.run(), PlanSteps(config, data.train).total_steps);
  if (!trouble.empty()) throw Error(ExitCode::kUsage, "run.trace_first_step: {}", trouble);
}

// Querying a worker's memory takes a while, so this is done only if the known minimum is a large
// part of this machine's memory.
void CheckLargeJob(const LaunchArguments& arguments, const PreparedJob& job) {
  const MachineMemory machine = ReadMachineMemory();
  if (4 * LeastMemoryOf(job.config, job.graph).all() < machine.all) return;
  const auto worker =
      AskWorkerMemory(arguments.worker_program, job.config, job.config.cluster().workers() - 1);
  (void)CheckMemory(WholeMemoryOf(job.config, job.graph, worker), machine);
}

// Takes the first steps, which a run and a dry run share.
PreparedJob Prepare(const LaunchArguments& arguments, bool dry) {
  LoadedConfig loaded =
      LoadToLaunch(arguments.config_path, arguments.settings, arguments.has_config);
  for (const std::string& setting : loaded.removed) {
    PrintResult(fmt::format("Warning: {} no longer exists and has no effect", setting));
  }
  config::Config config = std::move(loaded.config);
  std::shared_ptr<JobGpus> cards;  // of this host; null if the user or Slurm assigns them
  if (arguments.in_step()) {
    PlanInSlurm(arguments, config);
  } else if (arguments.hosts) {
    PlanOverSsh(arguments, config);
    cards = PlanGpusHere(arguments, config);
  } else if (!arguments.by_hand) {
    cards = PlanCards({.config_path = arguments.config_path,
                       .settings = arguments.settings,
                       .worker_program = arguments.worker_program,
                       .wait_s = arguments.wait_s},
                      config);
  }
  const int cores =
      arguments.in_step() ? static_cast<int>(arguments.slurm->cores) : AvailableCores();
  if (dry) {
    ResolveForMachine(config, cores);
  } else {
    ResolveConfig(config, cores);
  }
  // The server runs on this host: report an unsupported instruction set before it starts.
  (void)ChooseInstructionSet(config.server().instruction_set());
  Graph graph;  // of a program's job: only the program knows it
  if (HasProgram(config)) {
    if (arguments.by_hand) {
      throw Error(ExitCode::kUsage,
                  "muster server cannot start a job with worker.program yet: use muster launch");
    }
    config.mutable_worker()->set_program(0, FindProgram(config.worker().program(0)));
  } else {
    graph = BuildGraph(config.model(), InputShape(config.data()));
  }
  PreparedJob job{.config = std::move(config),
                  .written = std::move(loaded.written),
                  .graph = std::move(graph),
                  .cards = std::move(cards)};
  if (arguments.hosts) job.address = AddressForHosts(*arguments.hosts, job.config);
  if (const auto addresses = AddressesOf(arguments, job)) ResolveAddress(*addresses, job.config);
  return job;
}

}  // namespace

std::string RunDirFor(const LaunchArguments& arguments) {
  return LoadToLaunch(arguments.config_path, arguments.settings, arguments.has_config)
      .config.run()
      .dir();
}

int RunLaunch(const LaunchArguments& as_asked) {
  LaunchArguments arguments = as_asked;
  std::optional<RunDir> resumed;
  WarnOfOneHost(arguments);
  if (IsRequeued(arguments)) arguments.resume_or_begin = true;
  if (arguments.resume_or_begin) ResumeOrBegin(arguments);
  if (!arguments.resume.empty()) {
    resumed = TakeUp(arguments);
    if (const auto end = EndIfComplete(*resumed, arguments.settings)) {
      return static_cast<int>(*end);
    }
    KeepConfig(*resumed, arguments);
  }
  PreparedJob job = Prepare(arguments, /*dry=*/false);
  if (resumed) {
    job.resume_remark = CheckTakenUp(*resumed, job.config);
    PlanTrace(*resumed, arguments.settings, job.config);
  }
  CheckPrograms(arguments);
  const uint32_t workers = job.config.cluster().workers();
  // The server inherits the limit of this process.
  RequireOpenFiles(fmt::format("a job of {}", Plural(int64_t{workers}, "worker")),
                   OpenFilesOfServer(workers));
  if (arguments.by_hand) CheckWorkersByHand(*arguments.by_hand);
  // A resumed or replayed run has its weights in a checkpoint.
  if (!resumed && !arguments.in_place_of_run)
    job.initial_weights = DescribeInitialWeights(job.config.run(), job.graph);
  job.data = arguments.hosts ? CompareHosts(*arguments.hosts, *job.address, job.config)
                             : CheckData(arguments, job);
  CheckTracedSteps(job.config, job.data);
  // A series measures again for each seed, because seeds may split off different samples.
  if (arguments.measure && arguments.repeat == 0) PrintResult(arguments.measure(job.config));
  if (!arguments.elsewhere()) CheckLargeJob(arguments, job);
  SignalSource signals;
  if (job.cards) {
    const auto say = arguments.in_place_of_run ? SayBesideResult : SayInResult;
    TakeCards(*job.cards, {arguments.wait_s, say}, signals);
  }
  if (arguments.in_place_of_run) return arguments.in_place_of_run(job, signals);
  if (arguments.repeat > 0) return RunSeries(arguments, std::move(job), signals);
  RunDir dir =
      resumed ? std::move(*resumed) : RunDir::Make(job.config.run().dir(), arguments.config_path);
  return static_cast<int>(RunJob(arguments, job, dir, signals).exit_code);
}

// What the server and the workers on this host need.
LeastMemory LeastMemoryHere(const std::vector<Host>& hosts, const config::Config& config,
                            const Graph& graph) {
  LeastMemory needed = LeastMemoryOf(config, graph);
  needed.workers = 0;
  for (const Host& host : hosts) needed.workers += host.here ? static_cast<int>(host.slots) : 0;
  return needed;
}

int DryRun(const LaunchArguments& arguments) {
  if (arguments.in_step()) {
    throw Error(ExitCode::kUsage,
                "--dry-run describes a job on one host, not Slurm job {}: add --no-slurm",
                arguments.slurm->id);
  }
  PreparedJob job = Prepare(arguments, /*dry=*/true);
  std::string shown_dir = "runs/" + RunName(arguments.config_path) + "-<date>-<time>";
  if (!job.config.run().dir().empty()) {
    shown_dir = job.config.run().dir();
    RunDir::CheckUnused(shown_dir);
  }
  if (!job.config.run().trace_file().empty()) {
    RequireTracePlace(job.config.run().trace_file());
  }
  if (arguments.repeat > 0) {
    shown_dir += fmt::format("/seed-{} ... seed-{}", job.config.run().seed(),
                             LastSeed(job.config.run().seed(), arguments.repeat));
  }
  CheckPrograms(arguments);
  HeaderOptions header{.initial_weights = DescribeInitialWeights(job.config.run(), job.graph)};
  std::vector<Host> hosts;
  std::vector<MemoryRow> worker_memory;  // of other hosts it is not known here
  if (arguments.hosts) {
    SshHosts checked = *arguments.hosts;
    header.data = CompareHosts(checked, *job.address, job.config);
    header.elsewhere = HostsText(checked);
    header.server = ServerText(*job.address, UsesRelays(job.config, checked));
    hosts = checked.hosts;
  } else {
    header.cards = job.cards->Lines();
    if (!HasProgram(job.config)) {
      header.data = arguments.count_data(job.config);
      worker_memory =
          AskWorkerMemory(arguments.worker_program, job.config, job.config.cluster().workers() - 1);
    }
  }
  PrintResult(DryRunLines(arguments.config_path, job.config, job.graph, worker_memory, shown_dir,
                          header, hosts));
  if (arguments.verbose) {
    PrintResultAsIs("\n" + ConfigText(job.config));
  } else {
    PrintResult("Use --verbose to show every resolved setting.");
  }
  if (HasProgram(job.config)) return 0;
  try {
    (void)CheckMemory(arguments.hosts ? LeastMemoryHere(hosts, job.config, job.graph)
                                      : WholeMemoryOf(job.config, job.graph, worker_memory),
                      ReadMachineMemory());
  } catch (const Error& error) {
    PrintError(fmt::format("muster: error: a run would fail: {}\n", error.what()));
    return static_cast<int>(error.code());
  }
  // A dry run may leave out data.dir, but not be wrong about data without files.
  const bool left_out = job.config.data().dir().empty() && NeedsFiles(job.config.data());
  if (header.data.problem.empty() || left_out) return 0;
  PrintError(fmt::format("muster: error: a run would fail: {}\n", header.data.problem));
  return static_cast<int>(header.data.code);
}

}  // namespace muster
