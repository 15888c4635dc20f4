// `muster worker`.
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "cli/cluster/given_rank.h"
#include "cli/commands/options.h"
#include "cli/process/child_process.h"
#include "cli/process/held_file.h"
#include "common/base/error.h"
#include "common/base/shared_memory.h"
#include "common/config/job_size.h"
#include "common/link/protocol.h"
#include "common/link/tcp_address.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

bool IsAuto(const std::string& rank) { return rank == "AUTO" || rank == "auto"; }

struct WorkerOptions {
  ConfigOptions config;
  std::string rank;   // as typed; "": from the environment, if it has one
  bool join = false;  // take any free rank
  std::string endpoint, token_file;
};

constexpr const char* kWorkerFooter =
    "Use the config.txtpb of the server's run directory as CONFIG: it holds every setting. The "
    "server refuses a worker whose network, data, seed or preprocessing differs, and names the "
    "difference. By default a worker computes with one thread; start one per core to use them "
    "all.\n"
    "\n"
    "Examples:\n"
    "  muster worker runs/cifar10-20250131-120000/config.txtpb --rank 0 \\\n"
    "      --endpoint tcp://10.0.0.5:7700 \\\n"
    "      --token-file runs/cifar10-20250131-120000/token\n"
    "  MUSTER_TOKEN=$(cat token) muster worker config.txtpb --rank 1 \\\n"
    "      --data /data/cifar10 --endpoint tcp://10.0.0.5:7700\n"
    "  mpirun -np 4 muster worker config.txtpb --rank AUTO \\\n"
    "      --endpoint tcp://10.0.0.5:7700 --token-file token\n"
    "\n"
    "AUTO reads the rank that srun, mpirun (Open MPI, MPICH, Intel MPI), torchrun or an indexed "
    "Kubernetes Job gave this process. It is the default if there is one. The number of processes "
    "must fit cluster.workers. On hosts with several GPUs, each worker takes that of its local "
    "rank.\n"
    "\n"
    "With --join, a worker may join in the middle of a run, up to cluster.max_workers. On SIGTERM "
    "it finishes its part and leaves; the others continue (cluster.on_lost_worker).\n"
    "\n"
    "Only the owner may have access to the token file (chmod 600).\n"
    "\n"
    "Exit codes: 0 done; 2 command line; 3 data; 5 no server in time, or it stopped responding; "
    "7 the server or another worker was lost, or the run was stopped; 8 refused by the server.";

void DescribeWorker(CLI::App& command, WorkerOptions& options) {
  options.config.AddConfig(command);
  CLI::Option& rank =
      *command.add_option("--rank", options.rank,
                          "This worker's rank, from 0; AUTO: the one that its launcher gave it");
  rank.type_name("R|AUTO")->check([](const std::string& text) {
    return IsAuto(text) ? "" : WholeNumber(0, kMostWorkers - 1)(text);
  });
  command
      .add_flag("--join", options.join, "Take any free rank, even in a job that is already running")
      ->excludes(&rank);
  command.add_option("--endpoint", options.endpoint, "The address that the server printed")
      ->required()
      ->type_name("tcp://HOST:PORT");
  AddOption(command, "--token-file", options.token_file, "FILE",
            "The job's token; -: standard input; default: $MUSTER_TOKEN");
  options.config.AddShorthand(command, "--workers", "cluster.workers", "N",
                              "Same value as for the server (cluster.workers)");
  options.config.AddShorthand(command, "--data", "data.dir", "DIR",
                              "Data directory on this host (data.dir)");
  options.config.AddShorthand(command, "--seed", "run.seed", "S",
                              "Same value as for the server (run.seed)");
  command.footer(kWorkerFooter);
}

// `known`: the config sets the number of workers. Otherwise it depends on the server's cores.
void CheckRank(const GivenRank& given, const config::Config& config, bool known) {
  const uint32_t most = MostWorkers(config), workers = config.cluster().workers();
  if (!known) return;
  // Others may join later only if the config says so: more often the number is a mistake.
  const uint32_t most_started = config.cluster().has_max_workers() ? most : workers;
  if (given.size && (*given.size < workers || *given.size > most_started)) {
    throw Error(ExitCode::kUsage,
                "{} started {} workers ({}), but cluster.workers is {}: start {}, or give the "
                "server --workers {}",
                given.engine, *given.size, given.size_variable, workers, workers, *given.size);
  }
  if (given.rank < most) return;
  throw Error(ExitCode::kUsage, "{} {}: expected 0 to {}, because cluster.workers is {}{}",
              given.variable, given.rank, most - 1, workers,
              most > workers ? fmt::format(" and the job allows up to {}", most) : "");
}

// Empty if the worker joins with any rank.
std::optional<GivenRank> RankOf(const WorkerOptions& options, const Environment& environment) {
  if (options.join) return std::nullopt;
  if (!options.rank.empty() && !IsAuto(options.rank)) {
    return GivenRank{.variable = "--rank", .rank = static_cast<uint32_t>(std::stoul(options.rank))};
  }
  std::optional<GivenRank> given = FindGivenRank(environment);
  if (given) return given;
  if (options.rank.empty()) {
    throw Error(ExitCode::kUsage,
                "--rank is missing: give this worker's rank, or --join (see muster worker --help)");
  }
  throw Error(
      ExitCode::kUsage,
      "--rank AUTO: no launcher gave this process a rank; expected {}; start it with one of "
      "them{}, or give --rank R",
      KnownLaunchers(), environment.contains("SLURM_JOB_ID") ? ", in a Slurm job with srun" : "");
}

constexpr const char* kInput = "-";
constexpr int kInputMs = 60'000;

// A file with the first line of standard input.
HeldFile HoldInput() {
  std::string text;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kInputMs);
  while (text.find('\n') == std::string::npos && text.size() < 4096) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN};
    if (left.count() <= 0 || ::poll(&input, 1, static_cast<int>(left.count())) == 0) {
      throw Error(ExitCode::kUsage,
                  "--token-file -: expected a line with the token on standard input, got none "
                  "within {} s",
                  kInputMs / 1000);
    }
    char buffer[256];
    const ssize_t count = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (count > 0) text.append(buffer, static_cast<size_t>(count));
    if (count == 0 || (count < 0 && errno != EINTR)) break;
  }
  return HeldFile::OfText(text);
}

// Whether the workers that the launcher started on this host send one gradient together.
bool HasRelay(const config::Cluster& cluster, const std::string& endpoint,
              const GivenRank& launcher) {
  return launcher.local_size > 1 && cluster.host_sums() &&
         cluster.transport() == config::Cluster::AUTO && IsTcp(endpoint) && CanSeal() &&
         !ResolvedAddress(TcpAddress::Parse(endpoint)).of_this_host();
}

// Checks the whole command line here, because the worker program reports errors only as log lines.
int DoWorker(const WorkerOptions& options) {
  const std::optional<GivenRank> given = RankOf(options, ThisEnvironment());
  const std::filesystem::path path = std::filesystem::absolute(options.config.path());
  config::Config config = LoadConfig(options.config.path(), options.config.settings());
  const bool known = config.cluster().has_workers();
  ResolveConfig(config, AvailableCores());
  if (given) CheckRank(*given, config, known);
  CheckConnectable(options.endpoint);
  const HeldFile held = HeldFile::OfText(ConfigText(config));
  held.KeepOverExec();
  std::vector<std::string> words{"train", "--config", held.path(), "--endpoint", options.endpoint};
  // The config is in a run directory or in a copy of one, so the log goes there.
  if (path.filename() == "config.txtpb") {
    words.insert(words.end(), {"--log-dir", path.parent_path()});
  }
  if (given) {
    words.insert(words.end(), {"--rank", std::to_string(given->rank)});
  } else {
    words.emplace_back("--join");
  }
  // A worker that joins with any rank still needs a GPU of its own.
  const std::optional<GivenRank> launcher =
      options.join ? FindGivenRankIfClear(ThisEnvironment()) : given;
  if (launcher && !launcher->engine.empty()) {
    words.insert(words.end(), {"--local-rank", std::to_string(launcher->local_rank), "--rank-from",
                               Describe(*launcher)});
    if (HasRelay(config.cluster(), options.endpoint, *launcher)) {
      words.emplace_back("--through-relay");
    }
  }
  std::optional<HeldFile> token;
  if (options.token_file == kInput) {
    token = HoldInput();
    token->KeepOverExec();
    try {
      (void)ReadToken(token->path());
    } catch (const Error& error) {
      throw Renamed(error, token->path(), "standard input");
    }
    words.insert(words.end(), {"--token-file", token->path()});
  } else if (!options.token_file.empty()) {
    (void)ReadToken(options.token_file);
    words.insert(words.end(), {"--token-file", options.token_file});
  } else if (const char* const token = std::getenv(kTokenVariable);
             token == nullptr || *token == '\0') {
    (void)RequireToken(
        "", given ? fmt::format("worker {}", given->rank) : std::string("a joining worker"));
  }
  ReplaceProcess(Sibling("muster-worker"), words);
}

}  // namespace

void AddWorker(CLI::App& app, Action& action) {
  AddCommand<WorkerOptions>(app, action, "worker", "Start one worker by hand, on any host",
                            DescribeWorker, DoWorker);
}

}  // namespace muster
