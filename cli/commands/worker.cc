// `muster worker`.
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "cli/commands/options.h"
#include "cli/process/held_file.h"
#include "common/base/error.h"
#include "common/config/job_size.h"
#include "common/link/protocol.h"
#include "common/link/tcp_address.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

struct WorkerOptions {
  ConfigOptions config;
  std::optional<uint32_t> rank;
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
  CLI::Option& rank = *command.add_option("--rank", options.rank, "This worker's rank, from 0");
  rank.type_name("R")->check(WholeNumber(0, kMostWorkers - 1));
  command
      .add_flag("--join", options.join, "Take any free rank, even in a job that is already running")
      ->excludes(&rank);
  command.add_option("--endpoint", options.endpoint, "The address that the server printed")
      ->required()
      ->type_name("tcp://HOST:PORT");
  AddOption(command, "--token-file", options.token_file, "FILE",
            "The job's token; default: $MUSTER_TOKEN");
  options.config.AddShorthand(command, "--workers", "cluster.workers", "N",
                              "Same value as for the server (cluster.workers)");
  options.config.AddShorthand(command, "--data", "data.dir", "DIR",
                              "Data directory on this host (data.dir)");
  options.config.AddShorthand(command, "--seed", "run.seed", "S",
                              "Same value as for the server (run.seed)");
  command.footer(kWorkerFooter);
}

// Replaces this process with another program of the same folder.
[[noreturn]] void Become(const std::string& name, const std::vector<std::string>& arguments) {
  std::string program = Sibling(name);
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(program.c_str(), pointers.data());
  throw Error(ExitCode::kFailure, "cannot execute {}: {}", program, std::strerror(errno));
}

// `known`: the config sets the number of workers. Otherwise it depends on the server's cores.
void CheckRank(const WorkerOptions& options, const config::Config& config, bool known) {
  const uint32_t most = MostWorkers(config), workers = config.cluster().workers();
  if (!known || !options.rank || *options.rank < most) return;
  throw Error(ExitCode::kUsage, "--rank {}: expected 0 to {}, because cluster.workers is {}{}",
              *options.rank, most - 1, workers,
              most > workers ? fmt::format(" and the job allows up to {}", most) : "");
}

// Checks the whole command line here, because the worker program reports errors only as log lines.
int DoWorker(const WorkerOptions& options) {
  if (!options.rank && !options.join) {
    throw Error(ExitCode::kUsage,
                "--rank is missing: give this worker's rank, or --join (see muster worker --help)");
  }
  const std::filesystem::path path = std::filesystem::absolute(options.config.path());
  config::Config config = LoadConfig(options.config.path(), options.config.settings());
  const bool known = config.cluster().has_workers();
  ResolveConfig(config, AvailableCores());
  CheckRank(options, config, known);
  CheckConnectable(options.endpoint);
  const HeldFile held = HeldFile::OfText(ConfigText(config));
  held.KeepOverExec();
  std::vector<std::string> words{"--config", held.path(), "--endpoint", options.endpoint};
  // The config is in a run directory or in a copy of one, so the log goes there.
  if (path.filename() == "config.txtpb") {
    words.insert(words.end(), {"--log-dir", path.parent_path()});
  }
  if (options.join) {
    words.emplace_back("--join");
  } else {
    words.insert(words.end(), {"--rank", std::to_string(*options.rank)});
  }
  if (!options.token_file.empty()) {
    (void)ReadToken(options.token_file);
    words.insert(words.end(), {"--token-file", options.token_file});
  } else if (const char* const token = std::getenv(kTokenVariable);
             token == nullptr || *token == '\0') {
    (void)RequireToken("", options.join ? std::string("a joining worker")
                                        : fmt::format("worker {}", *options.rank));
  }
  Become("muster-worker", words);
}

}  // namespace

void AddWorker(CLI::App& app, Action& action) {
  AddCommand<WorkerOptions>(app, action, "worker", "Start one worker by hand, on any host",
                            DescribeWorker, DoWorker);
}

}  // namespace muster
