#include "launch/job/supervisor.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "common/base/resource_limits.h"
#include "common/events/event_line.h"
#include "launch/process/log_tail.h"
#include "launch/process/process_state.h"
#include "launch/text/units.h"

namespace muster {
namespace {

constexpr double kStartMargin = 15;         // the server enforces start_s; this is if it does not
constexpr double kFinishSeconds = 10;       // for all to end once the server has completed the run
constexpr double kEarlyExitSeconds = 10;    // for the server to complete it once a worker has ended
constexpr double kGraceSeconds = 2.5;       // for the others to notice a failure by themselves
constexpr double kStartGraceSeconds = 0.5;  // the same while they may not know one another yet
constexpr double kServerFirstSeconds = 2;   // for the server to write the last line
constexpr double kTermSeconds = 1.5;        // from SIGTERM to SIGKILL
constexpr double kGiveUpSeconds = 5;        // from SIGKILL to going without the process
// `timeout` sends its signal twice at once; wrappers pass on a Ctrl-C that has reached us already.
constexpr double kSameRequestSeconds = 0.2;
// Workers that wait for the server give up first, and say what they waited for.
constexpr double kSilenceMargin = 3;
constexpr std::chrono::seconds kLookInterval{1};
constexpr double kNever = 1e300;

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

Supervisor::Supervisor(const JobPlan& plan, SignalSource& signals, Console& console,
                       JobDisplay& display)
    : plan_(plan),
      signals_(signals),
      console_(console),
      display_(display),
      token_(plan.token),
      own_gap_(2 * kLookInterval) {
  members_.reserve(static_cast<size_t>(plan.workers) + 1);
}

JobOutcome Supervisor::Run() {
  StartServer();
  while (!Over()) {
    Wait();
    TakeSignals();
    TakeReports();
    TakeEnds();
    CheckDeadlines();
    ContinueStopping();
  }
  TakeReports();
  return Judge();
}

// ---------------------------------------------------------------------------------- starting

void Supervisor::StartServer() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw Error(ExitCode::kFailure, "cannot make a pipe: {}", ErrorText(errno));
  }
  UniqueFd write_end(ends[1]);
  reports_ = LineReader(UniqueFd(ends[0]), kMostEventBytes);
  // Room for minutes of reports, should the launcher be stopped (Ctrl-Z) for a while.
  ::fcntl(write_end.get(), F_SETPIPE_SZ, 1 << 20);

  display_.ShowStage("Starting the server");
  std::string log = plan_.dir->ServerLogPath();
  std::vector<std::string> arguments{"--config",     plan_.dir->ConfigPath(),
                                     "--endpoint",   plan_.endpoint,
                                     "--token-file", token_.Path(),
                                     "--report-fd",  std::to_string(write_end.get()),
                                     "--parent",     std::to_string(::getpid())};
  if (!plan_.bind.empty()) arguments.insert(arguments.end(), {"--bind", plan_.bind});
  members_.push_back({-1, log,
                      ChildProcess({.program = plan_.server_program,
                                    .arguments = std::move(arguments),
                                    .log_path = log,
                                    .inherited_fds = {token_.fd(), write_end.get()}})});
  deadline_ = Now() + plan_.start_s;
}

void Supervisor::StartWorkers(const std::string& endpoint) {
  display_.ShowStage("Starting " + Plural(plan_.workers, "worker"));
  phase_ = Phase::kWorkersJoining;
  deadline_ = Now() + plan_.start_s + kStartMargin;
  try {
    for (int rank = 0; rank < plan_.workers; ++rank) {
      std::string log = plan_.dir->WorkerLogPath(rank);
      members_.push_back(
          {rank, log,
           ChildProcess({.program = plan_.worker_program,
                         .arguments = {"--config", plan_.dir->ConfigPath(), "--rank",
                                       std::to_string(rank), "--endpoint", endpoint, "--token-file",
                                       token_.Path(), "--parent", std::to_string(::getpid())},
                         .log_path = log,
                         .inherited_fds = {token_.fd()}})});
    }
  } catch (const Error& error) {
    Fail({.code = error.code(), .what = error.what()}, "");
  }
}

// Somebody else starts them; the server says who is missing, and when it has waited long enough.
void Supervisor::InviteWorkers(const std::string& endpoint) {
  for (const std::string& line : plan_.invite_workers(endpoint)) console_.Print(line);
  display_.ShowStage("Waiting for " + Plural(plan_.workers, "worker"));
  phase_ = Phase::kWorkersJoining;
  deadline_ = Now() + plan_.start_s + kStartMargin;
}

// ---------------------------------------------------------------------------------- watching

double Supervisor::Now() const {
  return Seconds(std::chrono::steady_clock::now().time_since_epoch()) - own_gaps_s_;
}

void Supervisor::Wait() {
  double until = phase_ == Phase::kRunning ? kNever : deadline_;
  if (phase_ == Phase::kStopping) {
    until = std::min({terminate_server_at_, terminate_all_at_, kill_at_, give_up_at_});
  }
  if (early_exit_by_ > 0) until = std::min(until, early_exit_by_);
  double wait = std::clamp(until - Now(), 0.0, Seconds(kLookInterval));

  pollfd events[] = {{.fd = signals_.fd(), .events = POLLIN},
                     {.fd = reports_.fd(), .events = POLLIN},
                     {.fd = console_.poll_fd(), .events = POLLOUT}};
  ::poll(events, std::size(events), static_cast<int>(wait * 1000) + 1);
  own_gaps_s_ += Seconds(own_gap_.Look());
  console_.WritePending();
}

void Supervisor::TakeSignals() {
  while (const std::optional<ReceivedSignal> signal = signals_.Next()) {
    if (signal->number != SIGCHLD) StopFor(*signal);  // ends are looked for in every round anyway
  }
}

void Supervisor::TakeReports() {
  reports_.Read([this](const std::string& line) { TakeReport(line); });
  if (reports_.dropped() == dropped_reports_) return;
  dropped_reports_ = reports_.dropped();
  WarnOfReport(fmt::format("expected a line of at most {} bytes, got a longer one",
                           FormatCount(int64_t{kMostEventBytes})));
}

// What is reported is shown, and decides nothing that the processes' ends do not decide: the run
// goes on without what cannot be read.
void Supervisor::WarnOfReport(const std::string& what) {
  if (!bad_reports_.Count()) return;
  console_.Print(fmt::format("Warning: a report of the server cannot be read ({} so far): {}",
                             bad_reports_.count(), what));
}

void Supervisor::TakeReport(const std::string& line) {
  events::Event event;
  try {
    event = ParseEventLine(line);
  } catch (const Error& error) {
    return WarnOfReport(error.what());
  }
  server_heard_at_ = Now();
  switch (event.kind_case()) {
    case events::Event::kListening: {
      if (phase_ != Phase::kServerStarting) break;
      const std::string& named = event.listening().endpoint();
      const std::string& endpoint = named.empty() ? plan_.endpoint : named;
      plan_.invite_workers ? InviteWorkers(endpoint) : StartWorkers(endpoint);
      break;
    }
    case events::Event::kWaiting:
      missing_.assign(event.waiting().missing().begin(), event.waiting().missing().end());
      break;
    case events::Event::kStarted:
      if (phase_ == Phase::kWorkersJoining) phase_ = Phase::kRunning;
      break;
    case events::Event::kSummary:
      summary_ = event.summary();
      if ((phase_ == Phase::kWorkersJoining || phase_ == Phase::kRunning) &&
          summary_->end() == events::Summary::COMPLETED) {
        phase_ = Phase::kFinishing;
        deadline_ = Now() + kFinishSeconds;
        early_exit_by_ = 0;
      }
      break;
    case events::Event::kFailure:
      if (server_failure_ || observed_.ServerIsStuck()) break;
      server_failure_ = FailureOf(event.failure());
      Fail();
      break;
    default:
      break;
  }
  if (phase_ != Phase::kStopping) display_.OnEvent(event);
}

void Supervisor::TakeEnds() {
  bool failed = false;
  for (Member& member : members_) {
    std::optional<ChildEnd> end = member.process.CheckEnd();
    if (!end) continue;
    if (member.rank < 0) TakeReports();  // what it wrote before it ended
    ended_.push_back({member.rank, member.process.pid(), *end});
    bool clean = !end->by_signal && end->value == 0;
    if (!clean) failed = true;
    if (!clean || phase_ >= Phase::kFinishing) continue;
    if (member.rank < 0) {
      Fail({.code = ExitCode::kProcessDied, .what = DescribeEnd(ended_.back(), display_.AtStep())},
           LogPath(-1));
    } else if (early_exit_by_ == 0) {
      early_exit_by_ = Now() + kEarlyExitSeconds;
    }
  }
  if (failed) Fail();
}

void Supervisor::CheckDeadlines() {
  double now = Now();
  if (phase_ == Phase::kStopping) return;
  if (early_exit_by_ > 0 && now >= early_exit_by_) {
    Fail({.code = ExitCode::kProcessDied, .what = DescribeEnd(ended_.front(), display_.AtStep())},
         LogPath(ended_.front().rank));
    return;
  }
  CheckServerSilence();
  if (phase_ == Phase::kStopping || phase_ == Phase::kRunning || now < deadline_) return;
  if (phase_ == Phase::kServerStarting) {
    Fail({.code = ExitCode::kDeadline,
          .what = fmt::format("{} did not say where it listens within {} (deadlines.start_s)",
                              Name(-1, members_[0].process.pid()), FormatDuration(plan_.start_s))},
         LogPath(-1));
  } else if (phase_ == Phase::kWorkersJoining) {
    Fail({.code = ExitCode::kDeadline,
          .what = fmt::format("the job did not start within {} (deadlines.start_s); missing: {}",
                              FormatDuration(plan_.start_s), RankList(missing_))},
         LogPath(-1));
  } else {  // kFinishing
    for (const Member& member : members_) {
      if (!member.process.running()) continue;
      Fail({.code = ExitCode::kDeadline,
            .what =
                fmt::format("the run is complete, but {} did not end within {} of it{}",
                            Name(member.rank, member.process.pid()), FormatDuration(kFinishSeconds),
                            IsStopped(member.process.pid()) ? "; it is stopped (SIGSTOP?)" : "")},
           member.log_path);
      return;
    }
  }
}

// It reports a beat each second. Without this a job of which every process is stopped would be
// waited for.
void Supervisor::CheckServerSilence() {
  if (phase_ != Phase::kWorkersJoining && phase_ != Phase::kRunning) return;
  if (Now() - server_heard_at_ <= plan_.silence_s + kSilenceMargin) return;
  Fail({.code = ExitCode::kDeadline, .what = DescribeSilence(Observe(), display_.AtStep())},
       LogPath(-1));
}

Observed Supervisor::Observe() const {
  Observed observed{.server_pid = members_[0].process.pid()};
  for (const Member& member : members_) {
    if (member.process.running() && IsStopped(member.process.pid())) {
      observed.stopped.push_back({member.rank, member.process.pid()});
    }
  }
  const double silent = Now() - server_heard_at_;
  const bool reports = phase_ == Phase::kWorkersJoining || phase_ == Phase::kRunning;
  // Less than all of it: a beat may have come here after the last one that reached the workers.
  if (reports && members_[0].process.running() && silent > 0.75 * plan_.silence_s) {
    observed.server_silent_s = silent;
  }
  return observed;
}

// ---------------------------------------------------------------------------------- stopping

void Supervisor::Fail() {
  if (phase_ == Phase::kStopping) return;
  observed_ = Observe();
  bool joined = phase_ > Phase::kWorkersJoining;
  phase_ = Phase::kStopping;
  terminate_server_at_ = kNever;
  terminate_all_at_ = Now() + (joined ? kGraceSeconds : kStartGraceSeconds);
  kill_at_ = terminate_all_at_ + kTermSeconds;
  give_up_at_ = kill_at_ + kGiveUpSeconds;
  display_.ShowStage("Stopping: a process of the job has failed");
  // A stopped process notices nothing by itself.
  for (Member& member : members_) {
    if (member.process.running() && IsStopped(member.process.pid())) {
      member.process.Signal(SIGTERM);
    }
  }
}

void Supervisor::Fail(JobFailure failure, std::string log_path) {
  if (phase_ == Phase::kStopping) return;
  found_ = std::move(failure);
  found_log_path_ = std::move(log_path);
  Fail();
  terminate_all_at_ = Now();  // nobody else knows of this failure
  kill_at_ = terminate_all_at_ + kTermSeconds;
  give_up_at_ = kill_at_ + kGiveUpSeconds;
}

void Supervisor::StopFor(const ReceivedSignal& received) {
  const int signal = received.number;
  const double now = Now();
  if (stop_requested_at_ > 0) {
    // Two keystrokes are two requests, however fast. What a process sends soon after may be the
    // same request once more.
    const bool again = (received.from_terminal && stop_requested_by_key_) ||
                       now > stop_requested_at_ + kSameRequestSeconds;
    if (signal != SIGHUP && again) kill_at_ = now;
    return;
  }
  stop_requested_at_ = now;
  stop_requested_by_key_ = received.from_terminal;
  if (phase_ == Phase::kStopping) {  // after a failure: no more grace
    terminate_all_at_ = std::min(terminate_all_at_, now);
    kill_at_ = std::min(kill_at_, now + kTermSeconds);
    return;
  }
  phase_ = Phase::kStopping;
  stop_signal_ = signal;
  terminate_server_at_ = now;
  terminate_all_at_ = now + kServerFirstSeconds;
  kill_at_ = terminate_all_at_ + kTermSeconds;
  give_up_at_ = kill_at_ + kGiveUpSeconds;
  display_.ShowStage(signal == SIGINT ? "Stopping (Ctrl-C again kills at once)" : "Stopping");
}

void Supervisor::ContinueStopping() {
  if (phase_ != Phase::kStopping) return;
  double now = Now();
  if (now >= terminate_server_at_) {
    members_[0].process.Signal(SIGTERM);
    terminate_server_at_ = kNever;
  }
  // When the server was stopped first, the workers follow as soon as it is gone.
  bool server_gone = stop_signal_ != 0 && !members_[0].process.running();
  if (now >= terminate_all_at_ || (server_gone && terminate_all_at_ != kNever)) {
    SignalAll(SIGTERM);
    terminate_all_at_ = kNever;
  }
  if (now >= kill_at_) {
    SignalAll(SIGKILL);
    kill_at_ = kNever;
    give_up_at_ = now + kGiveUpSeconds;
  }
}

void Supervisor::SignalAll(int signal) {
  for (Member& member : members_) member.process.Signal(signal);
}

bool Supervisor::AnyRunning() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const Member& member) { return member.process.running(); });
}

bool Supervisor::Over() const {
  if (phase_ == Phase::kStopping && Now() >= give_up_at_) return true;
  return (phase_ == Phase::kStopping || phase_ == Phase::kFinishing) && !AnyRunning();
}

// ---------------------------------------------------------------------------------- judging

std::string Supervisor::LogPath(int rank) const {
  const bool ours = rank >= 0 && rank < plan_.workers && !plan_.invite_workers;
  return ours ? plan_.dir->WorkerLogPath(rank) : plan_.dir->ServerLogPath();
}

JobOutcome Supervisor::Judge() const {
  JobOutcome outcome{.summary = summary_};
  if (stop_signal_ != 0) {
    outcome.stop_signal = stop_signal_;
    outcome.exit_code = stop_signal_ == SIGINT ? ExitCode::kInterrupted : ExitCode::kTerminated;
    return outcome;
  }
  if (phase_ == Phase::kFinishing) return outcome;

  if (server_failure_) outcome.server_said = server_failure_->what;
  if (found_) {
    outcome.failure = found_;
    outcome.log_path = found_log_path_;
  } else {
    Judgement judgement = JudgeFailure(ended_, observed_, server_failure_, display_.AtStep(),
                                       [this](int rank) { return LastError(LogPath(rank)); });
    const JobFailure& failure = judgement.failure;
    outcome.log_path = LogPath(failure.rank ? static_cast<int>(*failure.rank) : -1);
    if (judgement.in_server_words) outcome.server_said.clear();
    outcome.failure = std::move(judgement.failure);
  }
  outcome.exit_code = outcome.failure->code;
  return outcome;
}

}  // namespace muster
