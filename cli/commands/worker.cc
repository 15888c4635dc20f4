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
  bool join = false;  // instead of a rank
  std::string endpoint, token_file;
};

constexpr const char* kWorkerFooter =
    "CONFIG is best the config.txtpb of the server's run directory: it holds every setting. "
    "The server refuses a worker whose network, data, seed or preprocessing differ, and "
    "names the difference. It computes with one thread; as many workers as cores use them "
    "all.\n"
    "\n"
    "Examples:\n"
    "  muster worker runs/cifar10-20250131-120000/config.txtpb --rank 0 \\\n"
    "      --endpoint tcp://10.0.0.5:7700 \\\n"
    "      --token-file runs/cifar10-20250131-120000/token\n"
    "  MUSTER_TOKEN=$(cat token) muster worker config.txtpb --rank 1 \\\n"
    "      --data /data/cifar10 --endpoint tcp://10.0.0.5:7700\n"
    "\n"
    "With --join it takes any free place, also in the middle of a run, up to cluster.max_workers. "
    "SIGTERM: it finishes its part, says goodbye, and the others go on (cluster.on_lost_worker).\n"
    "\n"
    "The token file must be its owner's alone (chmod 600).\n"
    "\n"
    "Exit codes: 0 done, 2 command line, 3 data, 5 no server in time, or a silent one, 7 the "
    "server or another worker was lost or the run was stopped, 8 refused by the server.";

void DescribeWorker(CLI::App& command, WorkerOptions& options) {
  options.config.AddConfig(command);
  CLI::Option& rank = *command.add_option("--rank", options.rank, "This worker's number, from 0");
  rank.type_name("R")->check(WholeNumber(0, kMostWorkers - 1));
  command
      .add_flag("--join", options.join,
                "Instead of a rank: take any free place, also of a job that runs already")
      ->excludes(&rank);
  command.add_option("--endpoint", options.endpoint, "As the server says it")
      ->required()
      ->type_name("tcp://HOST:PORT");
  AddOption(command, "--token-file", options.token_file, "FILE",
            "The job's token; default: $MUSTER_TOKEN");
  options.config.AddShorthand(command, "--workers", "cluster.workers", "N",
                              "As at the server (cluster.workers)");
  options.config.AddShorthand(command, "--data", "data.dir", "DIR",
                              "Directory of the data here (data.dir)");
  options.config.AddShorthand(command, "--seed", "run.seed", "S", "As at the server (run.seed)");
  command.footer(kWorkerFooter);
}

// This process becomes the sibling program.
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

// `known`: whether the config says the number of workers, or leaves it to the server's cores.
void CheckRank(const WorkerOptions& options, const config::Config& config, bool known) {
  const uint32_t most = MostWorkers(config), workers = config.cluster().workers();
  if (!known || !options.rank || *options.rank < most) return;
  throw Error(ExitCode::kUsage, "--rank {}: expected 0 to {}, since cluster.workers is {}{}",
              *options.rank, most - 1, workers,
              most > workers ? fmt::format(" and {} fit in the job", most) : "");
}

// Everything that can be wrong with the command line is said here; the worker itself speaks in log
// lines.
int DoWorker(const WorkerOptions& options) {
  if (!options.rank && !options.join) {
    throw Error(ExitCode::kUsage,
                "--rank is missing: This worker's number, or --join (see muster worker --help)");
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
  // That of a run directory, or of a copy of one.
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
    (void)RequireToken("", options.join ? std::string("a worker that joins")
                                        : fmt::format("worker {}", *options.rank));
  }
  Become("muster-worker", words);
}

}  // namespace

void AddWorker(CLI::App& app, Action& action) {
  AddCommand<WorkerOptions>(app, action, "worker", "Start one worker by hand, here or elsewhere",
                            DescribeWorker, DoWorker);
}

}  // namespace muster
