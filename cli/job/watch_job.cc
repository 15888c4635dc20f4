#include "cli/job/watch_job.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>

#include "cli/gpu/job_gpus.h"
#include "cli/job/failure.h"
#include "cli/job/supervisor.h"
#include "cli/process/child_process.h"
#include "cli/process/held_file.h"
#include "cli/process/line_reader.h"
#include "cli/process/log_tail.h"
#include "cli/text/units.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/base/resource_limits.h"
#include "common/base/text.h"
#include "common/config/config.h"
#include "common/events/event_line.h"

namespace muster {
namespace {

constexpr std::chrono::seconds kPollInterval{1};

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// A clock that counts only the time in which this process was not suspended. It advances only in
// Look(), so no suspension is ever included.
class WatchClock {
 public:
  WatchClock() { Look(); }
  double Now() const { return now_; }
  double gaps() const { return suspended_s_; }  // the excluded time, in seconds
  void Look() {
    const auto time = std::chrono::steady_clock::now();
    suspended_s_ += Seconds(suspensions_.Look(time));
    now_ = Seconds(time.time_since_epoch()) - suspended_s_;
  }

 private:
  SuspensionDetector suspensions_{2 * kPollInterval};
  double suspended_s_ = 0, now_ = 0;
};

// The members of a job as child processes of the launcher, owned by its main thread (see
// ChildProcess). The destructor kills those that are still running.
class JobProcesses : public Members {
 public:
  // Starts the server. Throws Error.
  JobProcesses(const JobPlan& plan, Console& console);

  // If the workers are started by hand, only prints how to start them. In a Slurm job, starts one
  // srun for all of them.
  void StartWorkers(const std::string& endpoint) override;
  void Replace(int rank) override;

  size_t size() const override { return members_.size(); }
  int rank(size_t member) const override { return members_[member].rank; }
  pid_t pid(size_t member) const override { return members_[member].process->pid(); }
  bool running(size_t member) const override { return members_[member].process->running(); }
  bool stopped(size_t member) const override { return members_[member].process->stopped(); }
  void Signal(size_t member, int signal) override { members_[member].process->Signal(signal); }
  void TellServerOfFailure() override { Signal(0, SIGUSR2); }
  std::string LastWords(int rank) const override;
  std::string LogPath(int rank) const override;

  // The processes that have ended since the last call.
  std::vector<EndedProcess> TakeEnds();
  // The server's events.
  LineReader& reports() { return reports_; }

 private:
  struct Member {
    int rank;
    std::unique_ptr<ChildProcess> process;
  };
  std::unique_ptr<ChildProcess> StartWorker(int rank, bool append) const;
  std::unique_ptr<ChildProcess> StartSrun(const std::string& endpoint);
  // The error that made this worker fail, not one that was only a consequence.
  std::string WordsInSrun(int rank) const;
  std::optional<int> FirstFailedInSrun() const;
  void UseProgram(ChildOptions& worker, int rank) const;
  std::unique_ptr<ChildProcess> Started(const ChildOptions& options) const;

  const JobPlan& plan_;
  Console& console_;
  const HeldFile token_;
  LineReader reports_;
  std::string endpoint_;  // the server's endpoint
  std::vector<Member> members_;
  std::vector<WorkerPlace> places_;
  std::vector<int64_t> log_begins_;  // the sizes of the workers' logs before srun
};

JobProcesses::JobProcesses(const JobPlan& plan, Console& console)
    : plan_(plan), console_(console), token_(HeldFile::OfText(plan.token)), places_(plan.places) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw Error(ExitCode::kFailure, "cannot create a pipe: {}", ErrorText(errno));
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
  for (const std::string& checkpoint : plan_.replay) {
    arguments.insert(arguments.end(), {"--replay", checkpoint});
  }
  members_.reserve(static_cast<size_t>(plan_.workers()) + 1);
  const ChildOptions server{.program = plan_.server_program,
                            .arguments = std::move(arguments),
                            .log_path = plan_.dir->ServerLogPath(),
                            .inherited_fds = {token_.fd(), write_end.get()},
                            .append = plan_.goes_on()};
  members_.push_back({-1, Started(server)});
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
  for (int rank = 0; rank < plan_.workers(); ++rank) {
    members_.push_back({rank, StartWorker(rank, plan_.goes_on())});
  }
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

std::unique_ptr<ChildProcess> JobProcesses::StartWorker(int rank, bool append) const {
  ChildOptions worker{.program = plan_.worker_program,
                      .arguments = {"--config", plan_.config_path, "--rank", std::to_string(rank),
                                    "--endpoint", endpoint_, "--token-file", token_.InheritedPath(),
                                    "--parent", std::to_string(::getpid())},
                      .log_path = plan_.dir->WorkerLogPath(rank),
                      .inherited_fds = {token_.fd()},
                      .append = append};
  if (HasProgram(*plan_.config)) UseProgram(worker, rank);
  if (places_.empty()) return Started(worker);
  const WorkerPlace& place = places_[static_cast<size_t>(rank)];
  worker.inherited_fds.insert(worker.inherited_fds.end(), place.lock_fds.begin(),
                              place.lock_fds.end());
  worker.environment.insert(worker.environment.end(), place.environment.begin(),
                            place.environment.end());
  worker.cores = place.cores;
  worker.memory_node = place.memory_node;
  return Started(worker);
}

// The client library reads these variables (client/muster.cc).
void JobProcesses::UseProgram(ChildOptions& worker, int rank) const {
  const auto& words = plan_.config->worker().program();
  worker.program = words[0];
  worker.arguments.assign(words.begin() + 1, words.end());
  worker.inherited_fds.clear();
  const std::string folder = plan_.worker_program.substr(0, plan_.worker_program.rfind('/'));
  worker.environment = {"MUSTER_ENDPOINT=" + endpoint_,
                        "MUSTER_CONFIG=" + plan_.config_path,
                        "MUSTER_TOKEN=" + plan_.token,
                        "MUSTER_PROGRAMS=" + folder,
                        fmt::format("MUSTER_RANK={}", rank),
                        fmt::format("OMP_NUM_THREADS={}", plan_.config->worker().threads())};
}

std::unique_ptr<ChildProcess> JobProcesses::Started(const ChildOptions& options) const {
  auto child = std::make_unique<ChildProcess>(options);
  if (!child->log_trouble().empty()) console_.Print("Warning: " + child->log_trouble());
  return child;
}

// The replacement appends to the log of the worker before it.
void JobProcesses::Replace(int rank) {
  if (plan_.place_again) {
    WorkerPlace& place = places_[static_cast<size_t>(rank)];
    const std::string before = GpuText(place.gpu);
    place = plan_.place_again(static_cast<uint32_t>(rank));
    if (const std::string now = GpuText(place.gpu); now != before) {
      console_.Print(fmt::format("Lost {}: rank {} continues on {}", before, rank, now));
    }
  }
  for (Member& member : members_) {
    if (member.rank == rank) member.process = StartWorker(rank, true);
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
  std::string words = LastError(LogPath(rank));
  if (!words.empty() || rank < 0 || !HasProgram(*plan_.config)) return words;
  // Python names the exception at the beginning of a line.
  const std::vector<std::string> lines = LastLines(LogPath(rank), 100);
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    if (!FirstMatch("^[A-Za-z_][A-Za-z0-9_.]*(Error|Exception|Exit)\\b", *line).empty()) {
      return *line;
    }
  }
  return "";
}

std::string JobProcesses::LogPath(int rank) const {
  if (rank == kSrunRank) {
    const auto failed = FirstFailedInSrun();
    return failed ? plan_.dir->WorkerLogPath(*failed) : plan_.dir->SrunLogPath();
  }
  const bool ours = rank >= 0 && rank < plan_.workers() && !plan_.invite_workers;
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

class Watch {
 public:
  Watch(const JobPlan& plan, SignalSource& signals, Console& console, JobDisplay& display)
      : plan_(plan),
        signals_(signals),
        console_(console),
        processes_(plan, console),
        supervisor_(plan, processes_, display, clock_.Now()) {}

  JobOutcome Run() {
    while (!supervisor_.Over(clock_.Now())) {
      Wait();
      TakeSignals();
      TakeReports();
      TakeEnds();
      supervisor_.Check(clock_.Now());
    }
    TakeReports();
    JobOutcome outcome = supervisor_.Outcome();
    if (outcome.lost_server) outcome.lost_server->at += clock_.gaps();
    return outcome;
  }

 private:
  void Wait() {
    const double wait =
        std::clamp(supervisor_.next_check() - clock_.Now(), 0.0, Seconds(kPollInterval));
    pollfd events[] = {{.fd = signals_.fd(), .events = POLLIN},
                       {.fd = processes_.reports().fd(), .events = POLLIN},
                       {.fd = console_.poll_fd(), .events = POLLOUT}};
    ::poll(events, std::size(events), static_cast<int>(wait * 1000) + 1);
    clock_.Look();
    console_.WritePending();
  }

  void TakeSignals() {
    while (const std::optional<ReceivedSignal> signal = signals_.Next()) {
      if (signal->number == SIGUSR1 && !plan_.in_slurm) {
        supervisor_.AskForCheckpoint();
      } else if (signal->number != SIGCHLD) {  // every iteration checks for ended processes anyway
        supervisor_.OnSignal(*signal, clock_.Now());
      }
    }
  }

  void TakeReports() {
    processes_.reports().Read([this](const std::string& line) { TakeReport(line); });
  }

  // An unreadable event does not end the run. If it was important, a deadline will expire.
  void TakeReport(const std::string& line) {
    events::Event event;
    try {
      event = ParseEventLine(line);
    } catch (const Error& error) {
      if (unreadable_.Count()) {
        console_.Print(fmt::format("Warning: cannot read an event of the server ({} so far): {}",
                                   unreadable_.count(), error.what()));
      }
      return;
    }
    supervisor_.OnEvent(event, clock_.Now());
  }

  void TakeEnds() {
    const std::vector<EndedProcess> ended = processes_.TakeEnds();
    if (ended.empty()) return;
    TakeReports();  // the events that the server wrote before it ended
    supervisor_.OnEnds(ended, clock_.Now());
  }

  const JobPlan& plan_;
  SignalSource& signals_;
  Console& console_;
  WatchClock clock_;
  JobProcesses processes_;
  Supervisor supervisor_;
  RareLine unreadable_;  // counts unreadable events
};

}  // namespace

std::string LossArgument(const ServerLoss& loss) {
  return fmt::format("{},{:.3f},{}", loss.step.value_or(-1), loss.at, loss.cause);
}

JobOutcome WatchJob(const JobPlan& plan, SignalSource& signals, Console& console,
                    JobDisplay& display) {
  display.ShowStage("Starting the server");
  return Watch(plan, signals, console, display).Run();
}

}  // namespace muster
