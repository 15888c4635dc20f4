#include "cli/job/job_processes.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "cli/gpu/job_gpus.h"
#include "cli/process/log_tail.h"
#include "cli/process/process_state.h"
#include "common/base/resource_limits.h"
#include "common/events/event_line.h"

namespace muster {
namespace {

void PutInPlace(const WorkerPlace& place, ChildOptions& worker) {
  worker.inherited_fds.insert(worker.inherited_fds.end(), place.lock_fds.begin(),
                              place.lock_fds.end());
  worker.environment = place.environment;
  worker.cores = place.cores;
  worker.memory_node = place.memory_node;
}

}  // namespace

JobProcesses::JobProcesses(const JobPlan& plan, Console& console)
    : plan_(plan), console_(console), token_(plan.token), places_(plan.places) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw Error(ExitCode::kFailure, "cannot make a pipe: {}", ErrorText(errno));
  }
  UniqueFd write_end(ends[1]);
  reports_ = LineReader(UniqueFd(ends[0]), kMostEventBytes);
  // Room for minutes of reports, should the launcher be stopped (Ctrl-Z) for a while.
  ::fcntl(write_end.get(), F_SETPIPE_SZ, 1 << 20);

  std::vector<std::string> arguments{"--config",     plan_.config_path,
                                     "--endpoint",   plan_.endpoint,
                                     "--token-file", token_.Path(),
                                     "--report-fd",  std::to_string(write_end.get()),
                                     "--parent",     std::to_string(::getpid())};
  if (!plan_.bind.empty()) arguments.insert(arguments.end(), {"--bind", plan_.bind});
  for (const ServerLoss& loss : plan_.losses) {
    arguments.insert(arguments.end(), {"--lost", LossArgument(loss)});
  }
  if (plan_.resume) arguments.emplace_back("--resume");
  if (plan_.evaluate) arguments.emplace_back("--evaluate");
  members_.reserve(static_cast<size_t>(plan_.workers) + 1);
  const ChildOptions server{.program = plan_.server_program,
                            .arguments = std::move(arguments),
                            .log_path = plan_.dir->ServerLogPath(),
                            .inherited_fds = {token_.fd(), write_end.get()},
                            .append = plan_.resume};
  members_.push_back({-1, Started(server)});
}

void JobProcesses::StartWorkers(const std::string& endpoint) {
  if (plan_.invite_workers) {
    for (const std::string& line : plan_.invite_workers(endpoint)) console_.Print(line);
    return;
  }
  endpoint_ = endpoint;
  for (int rank = 0; rank < plan_.workers; ++rank) {
    members_.push_back({rank, StartWorker(rank, plan_.resume)});
  }
}

std::unique_ptr<ChildProcess> JobProcesses::StartWorker(int rank, bool append) const {
  ChildOptions worker{.program = plan_.worker_program,
                      .arguments = {"--config", plan_.config_path, "--rank", std::to_string(rank),
                                    "--endpoint", endpoint_, "--token-file", token_.Path(),
                                    "--parent", std::to_string(::getpid())},
                      .log_path = plan_.dir->WorkerLogPath(rank),
                      .inherited_fds = {token_.fd()},
                      .append = append};
  if (plan_.evaluate) worker.arguments.emplace_back("--evaluate");
  if (!places_.empty()) PutInPlace(places_[static_cast<size_t>(rank)], worker);
  return Started(worker);
}

std::unique_ptr<ChildProcess> JobProcesses::Started(const ChildOptions& options) const {
  auto child = std::make_unique<ChildProcess>(options);
  if (!child->log_trouble().empty()) console_.Print("Warning: " + child->log_trouble());
  return child;
}

// In the log of the one before it.
void JobProcesses::Replace(int rank) {
  if (plan_.place_again) {
    WorkerPlace& place = places_[static_cast<size_t>(rank)];
    const std::string before = GpuText(place.gpu);
    place = plan_.place_again(static_cast<uint32_t>(rank));
    if (const std::string now = GpuText(place.gpu); now != before) {
      console_.Print(fmt::format("{} is lost: rank {} goes on on {}", before, rank, now));
    }
  }
  for (Member& member : members_) {
    if (member.rank == rank) member.process = StartWorker(rank, true);
  }
}

bool JobProcesses::stopped(size_t member) const {
  return running(member) && IsStopped(pid(member));
}

std::string JobProcesses::LastWords(int rank) const { return LastError(LogPath(rank)); }

std::string JobProcesses::LogPath(int rank) const {
  const bool ours = rank >= 0 && rank < plan_.workers && !plan_.invite_workers;
  return ours ? plan_.dir->WorkerLogPath(rank) : plan_.dir->ServerLogPath();
}

std::vector<EndedProcess> JobProcesses::TakeEnds() {
  std::vector<EndedProcess> ended;
  for (Member& member : members_) {
    if (const std::optional<ChildEnd> end = member.process->CheckEnd()) {
      ended.push_back({member.rank, member.process->pid(), *end});
    }
  }
  return ended;
}

}  // namespace muster
