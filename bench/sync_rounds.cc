#include "bench/sync_rounds.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "bench/process_memory.h"
#include "bench/sync_worker.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/link/protocol.h"
#include "common/link/tcp_address.h"
#include "common/transport/link_options.h"
#include "common/transport/transport.h"
#include "ps/run/server.h"

namespace muster::bench {
namespace {

template <typename Body>
pid_t Spawn(const Body& body) {
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child != 0) return child;
  DieWithParent(parent);
  int code = 1;
  try {
    code = body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sync_bench: %s\n", error.what());
  }
  std::fflush(nullptr);
  ::_exit(code);
}

void ReadAll(int fd, void* data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = ::read(fd, static_cast<char*>(data) + done, bytes - done);
    if (n <= 0) throw Error(ExitCode::kPeerFailed, "a process of the benchmark failed");
    done += static_cast<size_t>(n);
  }
}

// Runs the server, which writes its endpoint to `endpoint_fd` in 256 bytes.
int Serve(const SyncJob& job, int endpoint_fd) {
  const Graph graph = BuildGraph(job.config.model(), InputShape(job.config.data()));
  LinkOptions options = LinkOptionsFor(job.config, graph.layout());
  options.token = job.token;
  options.encrypt = IsEncrypted(job.config.cluster(), job.endpoint);
  auto link = Listen(job.endpoint, JobOf(job.token), job.config.cluster().transport(), options);
  char endpoint[256] = {};
  std::strncpy(endpoint, link->endpoint().c_str(), sizeof endpoint - 1);
  (void)!::write(endpoint_fd, endpoint, sizeof endpoint);
  Recorder recorder(job.config, graph, -1);
  Server(job.config, graph, job.token, std::move(link), recorder).Serve();
  return 0;
}

}  // namespace

SyncRounds RunSyncRounds(SyncJob job) {
  int endpoint_pipe[2], result_pipe[2];
  if (::pipe(endpoint_pipe) != 0 || ::pipe(result_pipe) != 0) {
    throw Error(ExitCode::kFailure, "pipe: {}", std::strerror(errno));
  }
  std::vector<pid_t> children{Spawn([&] { return Serve(job, endpoint_pipe[1]); })};
  ::close(endpoint_pipe[1]);
  char endpoint[256];
  ReadAll(endpoint_pipe[0], endpoint, sizeof endpoint);
  job.endpoint = endpoint;
  for (uint32_t rank = 0; rank < job.options.workers; ++rank) {
    children.push_back(Spawn([&] {
      const std::vector<double> seconds = WorkInRounds(job, rank);
      if (rank == 0) {
        (void)!::write(result_pipe[1], seconds.data(), seconds.size() * sizeof(double));
      }
      return seconds.empty() ? 1 : 0;
    }));
  }
  ::close(result_pipe[1]);
  std::optional<MemoryWatch> watch;
  if (job.options.memory) watch.emplace(children);
  std::vector<double> seconds(static_cast<size_t>(job.config.run().steps()));
  ReadAll(result_pipe[0], seconds.data(), seconds.size() * sizeof(double));
  const double memory = watch ? watch->Peak() : 0;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    if (status != 0) throw Error(ExitCode::kPeerFailed, "a process of the benchmark failed");
  }
  seconds.erase(seconds.begin(), seconds.begin() + kWarmUpRounds);
  return {std::move(seconds), memory};
}

}  // namespace muster::bench
