#include "cli/job/job_processes.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "cli/gpu/job_gpus.h"
#include "cli/process/log_tail.h"
#include "cli/process/program_environment.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/resource_limits.h"
#include "common/base/text.h"
#include "common/config/config.h"
#include "common/events/event_line.h"

namespace muster {

std::string LossArgument(const ServerLoss& loss) {
  return fmt::format("{},{:.3f},{}", loss.step.value_or(-1), loss.at, loss.cause);
}

JobProcesses::JobProcesses(const JobPlan& plan, Console& console)
    : plan_(plan),
      console_(console),
      token_(HeldFile::OfText(plan.token)),
      places_(plan.places),
      relay_(plan_, token_, places_, console_) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw StartError(ExitCode::kFailure, "cannot create a pipe: {}", ErrorText(errno));
  }
  UniqueFd write_end(ends[1]);
  reports_ = LineReader(UniqueFd(ends[0]), kMostEventBytes);
  // Room for minutes of events, in case the launcher is stopped (Ctrl-Z) for a while.
  ::fcntl(write_end.get(), F_SETPIPE_SZ, 1 << 20);

  std::vector<std::string> arguments{
      "--config",     plan_.config_path,         "--endpoint",  plan_.endpoint,
      "--token-file", token_.InheritedPath(),    "--report-fd", std::to_string(write_end.get()),
      "--parent",     std::to_string(::getpid())};
  if (!plan_.bind.empty()) arguments.insert(arguments.end(), {"--bind", plan_.bind});
  for (const ServerLoss& loss : plan_.losses) {
    arguments.insert(arguments.end(), {"--lost", LossArgument(loss)});
  }
  if (plan_.resume) arguments.emplace_back("--resume");
  if (const std::vector<int> ranks = LostRanks(); !ranks.empty()) {
    arguments.insert(arguments.end(), {"--without", Join(ranks, ",")});
  }
  for (const std::string& checkpoint : plan_.replay) {
    arguments.insert(arguments.end(), {"--replay", checkpoint});
  }
  members_.reserve(static_cast<size_t>(plan_.workers()) + 1);
  const ChildOptions server{.program = plan_.server_program,
                            .arguments = std::move(arguments),
                            .log_path = plan_.dir->ServerLogPath(),
                            .inherited_fds = {token_.fd(), write_end.get()},
                            .environment = {kSeesNoGpu},
                            .append = plan_.goes_on()};
  members_.push_back({-1, Started(server)});
}

// All agents end at the same time.
JobProcesses::~JobProcesses() {
  for (const auto& remote : remote_) remote->Close();
}

void JobProcesses::StartWorkers(const std::string& endpoint) {
  if (plan_.invite_workers) {
    for (const std::string& line : plan_.invite_workers(endpoint)) console_.Print(line);
    return;
  }
  endpoint_ = endpoint;
  if (plan_.srun) {
    members_.push_back({kSrunRank, StartSrun(endpoint)});
    return;
  }
  if (plan_.hosts != nullptr) return StartOnHosts();
  for (int rank = 0; rank < plan_.workers(); ++rank) {
    members_.push_back({rank, StartWorker(rank, plan_.goes_on())});
  }
}

bool JobProcesses::IsLost(const Host& host) const {
  return std::ranges::find(plan_.lost_hosts, host.name) != plan_.lost_hosts.end();
}

std::vector<int> JobProcesses::LostRanks() const {
  std::vector<int> ranks;
  if (plan_.hosts == nullptr) return ranks;
  int first = 0;
  for (const Host& host : plan_.hosts->hosts) {
    const int end = first + static_cast<int>(host.slots);
    for (; first < end; ++first) {
      if (IsLost(host)) ranks.push_back(first);
    }
  }
  return ranks;
}

std::vector<std::string> JobProcesses::LostHosts() const {
  std::vector<std::string> hosts = plan_.lost_hosts;
  for (const auto& remote : remote_) {
    if (remote->lost_workers()) hosts.push_back(remote->host());
  }
  return hosts;
}

void JobProcesses::StartOnHosts() {
  int first = 0;
  for (const Host& host : plan_.hosts->hosts) {
    const int end = first + static_cast<int>(host.slots);
    if (IsLost(host)) {
      first = end;
      continue;
    }
    if (!host.here) {
      remote_.push_back(
          std::make_unique<RemoteWorkers>(plan_, host.name, first, endpoint_, console_));
    }
    for (int rank = first; rank < end; ++rank) {
      if (host.here) {
        members_.push_back({rank, StartWorker(rank, plan_.goes_on())});
      } else {
        remote_.back()->Start(rank);
        members_.push_back({rank, nullptr, remote_.back().get()});
      }
    }
    first = end;
  }
}

pid_t JobProcesses::pid(size_t member) const {
  const Member& one = members_[member];
  return one.remote == nullptr ? one.process->pid() : one.remote->pid(one.rank);
}

bool JobProcesses::running(size_t member) const {
  const Member& one = members_[member];
  return one.remote == nullptr ? one.process->running() : one.remote->running(one.rank);
}

bool JobProcesses::stopped(size_t member) const {
  const Member& one = members_[member];
  return one.remote == nullptr && one.process->stopped();
}

void JobProcesses::Signal(size_t member, int signal) {
  const Member& one = members_[member];
  if (one.remote != nullptr) return one.remote->Signal(one.rank, signal);
  one.process->Signal(signal);
}

bool JobProcesses::CanReplace(int rank) const {
  return std::ranges::none_of(members_, [&](const Member& member) {
    return member.rank == rank && member.remote != nullptr && member.remote->lost();
  });
}

std::vector<int> JobProcesses::fds() const {
  std::vector<int> fds;
  for (const auto& remote : remote_) {
    const std::vector<int> more = remote->fds();
    fds.insert(fds.end(), more.begin(), more.end());
  }
  return fds;
}

std::unique_ptr<ChildProcess> JobProcesses::StartSrun(const std::string& endpoint) {
  for (int rank = 0; rank < plan_.workers(); ++rank) {
    std::error_code missing;
    const auto size = std::filesystem::file_size(plan_.dir->WorkerLogPath(rank), missing);
    log_begins_.push_back(missing || !plan_.goes_on() ? 0 : static_cast<int64_t>(size));
  }
  const std::vector<std::string> words = plan_.srun(endpoint);
  return Started({.program = words[0],
                  .arguments = {words.begin() + 1, words.end()},
                  .log_path = plan_.dir->SrunLogPath(),
                  .input_path = token_.InheritedPath(),
                  .append = plan_.goes_on()});
}

std::unique_ptr<ChildProcess> JobProcesses::StartWorker(int rank, bool append) {
  const bool relayed = plan_.hosts == nullptr && AddsInGpus(*plan_.config);
  const std::string& endpoint = relayed ? relay_.EndpointFor(rank, endpoint_) : endpoint_;
  ChildOptions worker{.program = plan_.worker_program,
                      .arguments = {"train", "--config", plan_.config_path, "--rank",
                                    std::to_string(rank), "--endpoint", endpoint, "--token-file",
                                    token_.InheritedPath(), "--parent", std::to_string(::getpid())},
                      .log_path = plan_.dir->WorkerLogPath(rank),
                      .inherited_fds = {token_.fd()},
                      .append = append};
  if (const int local_rank = LocalRank(rank); local_rank >= 0) {
    worker.arguments.insert(worker.arguments.end(), {"--local-rank", std::to_string(local_rank)});
  }
  if (HasProgram(*plan_.config)) UseProgram(worker, rank);
  PutWorker(places_.empty() ? nullptr : &places_[static_cast<size_t>(rank)], plan_.config->worker(),
            worker);
  return Started(worker);
}

void JobProcesses::UseProgram(ChildOptions& worker, int rank) const {
  const auto& words = plan_.config->worker().program();
  worker.program = words[0];
  worker.arguments.assign(words.begin() + 1, words.end());
  worker.inherited_fds.clear();
  worker.takes_all_along = true;
  worker.environment = ProgramEnvironment({.endpoint = endpoint_,
                                           .config = plan_.config_path,
                                           .token = plan_.token,
                                           .worker_program = plan_.worker_program,
                                           .rank = rank,
                                           .threads = plan_.config->worker().threads(),
                                           .seed = plan_.config->run().seed(),
                                           .slices = plan_.config->run().slices()});
}

std::unique_ptr<ChildProcess> JobProcesses::Started(const ChildOptions& options) const {
  auto child = std::make_unique<ChildProcess>(options);
  if (!child->log_trouble().empty()) console_.Print("Warning: " + child->log_trouble());
  return child;
}

// Among the workers of its host; -1 if all are on this one.
int JobProcesses::LocalRank(int rank) const {
  if (plan_.hosts == nullptr) return -1;
  int local = rank;
  for (const Host& host : plan_.hosts->hosts) {
    if (local < static_cast<int>(host.slots)) break;
    local -= static_cast<int>(host.slots);
  }
  return local;
}

// The replacement appends to the log of the worker before it.
void JobProcesses::Replace(int rank) {
  if (plan_.place_again && !places_[static_cast<size_t>(rank)].gpu.uuid.empty()) {
    WorkerPlace& place = places_[static_cast<size_t>(rank)];
    const std::string before = GpuText(place.gpu);
    place = plan_.place_again(static_cast<uint32_t>(rank));
    if (const std::string now = GpuText(place.gpu); now != before) {
      console_.Print(fmt::format("Lost {}: rank {} continues on {}", before, rank, now));
    }
  }
  for (Member& member : members_) {
    if (member.rank != rank) continue;
    if (member.remote != nullptr) {
      member.remote->Start(rank);
    } else {
      member.process = StartWorker(rank, true);
    }
  }
}

std::string JobProcesses::WordsInSrun(int rank) const {
  return LastError(plan_.dir->WorkerLogPath(rank), log_begins_[static_cast<size_t>(rank)],
                   static_cast<int>(ExitCode::kPeerFailed));
}

// srun itself tells only the exit codes of the workers.
std::optional<int> JobProcesses::FirstFailedInSrun() const {
  for (int rank = 0; rank < static_cast<int>(log_begins_.size()); ++rank) {
    if (!WordsInSrun(rank).empty()) return rank;
  }
  return std::nullopt;
}

std::string JobProcesses::LastWords(int rank) const {
  if (rank == kSrunRank) {
    if (const auto failed = FirstFailedInSrun()) {
      return fmt::format("rank {}: {}", *failed, WordsInSrun(*failed));
    }
    const std::vector<std::string> lines = LastLines(LogPath(rank), 1);
    return lines.empty() ? "" : lines[0];
  }
  for (const Member& member : members_) {
    const bool lost = member.rank == rank && member.remote != nullptr && member.remote->lost(rank);
    if (lost) return member.remote->Trouble();
  }
  std::string words = LastError(LogPath(rank));
  if (!words.empty() || rank < 0 || !HasProgram(*plan_.config)) return words;
  // Python names the exception at the beginning of a line, or says that there is no such script.
  const std::vector<std::string> lines = LastLines(LogPath(rank), 100);
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    if (!FirstMatch("^[A-Za-z_][A-Za-z0-9_.]*(Error|Exception|Exit)\\b|: can't open file |^usage: |"
                    "^muster: this process counts as lost: ",
                    *line)
             .empty()) {
      return *line;
    }
  }
  return "its log names no error";
}

std::string JobProcesses::LogPath(int rank) const {
  if (rank == kSrunRank) {
    const auto failed = FirstFailedInSrun();
    return failed ? plan_.dir->WorkerLogPath(*failed) : plan_.dir->SrunLogPath();
  }
  const bool ours = rank >= 0 && rank < plan_.workers() && !plan_.invite_workers;
  return ours ? plan_.dir->WorkerLogPath(rank) : plan_.dir->ServerLogPath();
}

// Whether the helper of this rank's program has written to the log.
bool JobProcesses::HasJoined(int rank) const {
  const std::string helper = fmt::format(" worker-{} ", rank);
  std::ifstream log = ReadPlainFile(LogPath(rank));
  for (std::string line; std::getline(log, line);) {
    if (line.find(helper) != std::string::npos) return true;
  }
  return false;
}

std::vector<EndedProcess> JobProcesses::TakeEnds() {
  std::vector<EndedProcess> ended;
  relay_.Check();
  for (const auto& remote : remote_) remote->TakeEnds(ended);
  for (Member& member : members_) {
    if (member.remote != nullptr) continue;
    if (const std::optional<ChildEnd> end = member.process->CheckEnd()) {
      ended.push_back({member.rank, member.process->pid(), *end});
      ended.back().never_asked = !end->by_signal && end->value == 0 && member.rank >= 0 &&
                                 HasProgram(*plan_.config) && !HasJoined(member.rank);
    }
  }
  return ended;
}

void JobProcesses::AwaitTraces() {
  constexpr int kRounds = 600;  // of 0.1 s at most
  for (int round = 0; round < kRounds; ++round) {
    if (std::ranges::none_of(remote_, [](const auto& one) { return one->AwaitsTrace(); })) return;
    std::vector<pollfd> events;
    for (const int fd : fds()) events.push_back({.fd = fd, .events = POLLIN});
    ::poll(events.data(), events.size(), 100);
    (void)TakeEnds();
  }
}

}  // namespace muster
