#include "ps/update/program_updater.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/base/process.h"
#include "common/base/signals.h"
#include "common/base/text.h"
#include "common/link/program_variables.h"
#include "common/trace/trace.h"

namespace muster {
namespace {

using program::Kind;
using program::WorkKind;

constexpr size_t kPieceBytes = 4 << 20;
constexpr std::chrono::seconds kGrace{5};  // for a process whose connection has ended

// Between fork and exec, a process of several threads may only make system calls.
[[noreturn]] void Exec(pid_t parent, int fd, char* const* words, char* const* environment) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  RestoreSignals();
  // A signal to stop may reach all processes of a job; then the server still needs this one.
  for (const int signal : kStopSignals) ::signal(signal, SIG_IGN);
  ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  ::fcntl(fd, F_SETFD, 0);
  ::execvpe(words[0], words, environment);
  ::perror(words[0]);
  ::_exit(127);
}

// Returns whether the process has ended within this time, and how.
bool AwaitEnd(pid_t pid, std::chrono::steady_clock::duration patience, int& status) {
  const auto until = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const pid_t got = ::waitpid(pid, &status, WNOHANG);
    if (got == pid || (got < 0 && errno == ECHILD)) return true;
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

bool WasKilled(int status) {
  // A shell reports its child's signal so.
  return WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGKILL);
}

std::string EndText(int status) {
  return fmt::format("the process of the program that updates the weights (MUSTER_RANK=-1) {}",
                     WIFSIGNALED(status)
                         ? "was killed by " + SignalName(WTERMSIG(status))
                         : fmt::format("ended with exit code {}", WEXITSTATUS(status)));
}

Error Unexpected(Kind got, Kind expected) {
  return Error(ExitCode::kFailure,
               "the process of the program that updates the weights sent frame {}, expected {}",
               static_cast<uint32_t>(got), static_cast<uint32_t>(expected));
}

}  // namespace

ProgramUpdater::ProgramUpdater(const config::Config& config, const std::string& config_path,
                               const std::string& endpoint)
    : config_(config) {
  Spawn(config_path, endpoint);
  link_->Limit(config.deadlines().start_s());
  Submit([this] {
    trace::NameThread("updater");
    description_ = link_->ReadDescription();
    joined_ = true;
  });
}

void ProgramUpdater::Submit(std::function<void()> job) {
  thread_->Submit([this, job = std::move(job)] {
    if (failed_) return;
    try {
      job();
    } catch (const Error& error) {
      Fail(error.code() == ExitCode::kPeerFailed ? Lost(error) : error);
    }
  });
}

void ProgramUpdater::Spawn(const std::string& config_path, const std::string& endpoint) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Error(ExitCode::kFailure, "socketpair: {}", std::strerror(errno));
  }
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  std::vector<std::string> words{config_.worker().program().begin(),
                                 config_.worker().program().end()};
  const char* hashes = ::getenv("PYTHONHASHSEED");
  std::vector<std::string> environment =
      EnvironmentWith({fmt::format("PYTHONHASHSEED={}", hashes == nullptr ? "0" : hashes),
                       "MUSTER_ENDPOINT=" + endpoint, "MUSTER_CONFIG=" + config_path,
                       "MUSTER_RANK=-1", fmt::format("MUSTER_SEED={}", config_.run().seed()),
                       fmt::format("MUSTER_SLICES={}", config_.run().slices()),
                       fmt::format("MUSTER_UPDATE_FD={}", theirs.get()), "MUSTER_TOKEN=",
                       // The bits of norms and products may depend on it.
                       fmt::format("OMP_NUM_THREADS={}", config_.worker().threads()),
                       // The server's variables are in the memory of the host.
                       "CUDA_VISIBLE_DEVICES=",
                       "MUSTER_PROGRAMS=" +
                           std::filesystem::read_symlink("/proc/self/exe").parent_path().string()});
  const std::vector<char*> word_pointers = Pointers(words), pointers = Pointers(environment);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) Exec(parent, theirs.get(), word_pointers.data(), pointers.data());
  pid_ = child;
  if (child < 0) throw Error(ExitCode::kFailure, "fork: {}", std::strerror(errno));
  link_.emplace(std::move(ours), child, ProgramLink::Unwatched());
  LogInfo("process {} of the program will update the weights", child);
}

ProgramUpdater::~ProgramUpdater() {
  closing_ = true;
  if (pid_ > 0) ::kill(-pid_, SIGKILL);
  thread_.reset();
  int status = 0;
  if (pid_ > 0) (void)AwaitEnd(pid_, kGrace, status);
}

bool ProgramUpdater::HasJoined() {
  if (failed_) throw Error(*error_);
  return joined_;
}

void ProgramUpdater::Begin(const VariableLayout& theirs, const wire::Hello& hello, Start start) {
  const ProgramDescription& own = *description_;
  const VariableLayout layout = LayOutVariables(own.variables, own.optimizer);
  const bool same_data = own.join.train_samples == hello.train_samples() &&
                         own.join.validation_samples == hello.validation_samples() &&
                         own.join.test_samples == hello.test_samples() &&
                         own.join.fingerprint == hello.data_fingerprint();
  if (layout.hash() != theirs.hash() || !same_data) {
    throw Error(ExitCode::kRefused,
                "the process of the program that updates the weights (MUSTER_RANK=-1) has other {} "
                "than the workers",
                same_data ? "variables" : "data or constants");
  }
  layout_ = layout;
  start_ = std::move(start);
  link_->MapMemory(layout_.arena_floats());
}

void ProgramUpdater::SendStart() {
  const std::string state = std::exchange(start_.state, "");
  const program::Joined joined{.rank = -1,
                               .first_step = start_.first_step,
                               .total_steps = start_.plan.total_steps,
                               .steps_per_epoch = start_.plan.StepsPerEpoch(),
                               .slices = start_.plan.slices,
                               .state_bytes = std::ssize(state)};
  link_->Send(Kind::kJoined, &joined, sizeof joined);
  for (size_t at = 0; at < state.size(); at += kPieceBytes) {
    link_->Send(Kind::kRestored, state.data() + at, std::min(kPieceBytes, state.size() - at));
  }
}

void ProgramUpdater::Attach(ThreadPool& pool, const ToldValues& values,
                            std::function<void(const wire::Tell&)> tell,
                            std::function<void(const Error&)> failed) {
  pool_ = &pool;
  values_ = &values;
  tell_ = std::move(tell);
  on_failure_ = std::move(failed);
  link_->Limit(config_.deadlines().first_step_s());
  Submit([this] {
    SendStart();
    AwaitNext();
  });
}

void ProgramUpdater::Update(int64_t step, std::function<void(double)> done) {
  ++wanted_;
  Submit([this, step, done = std::move(done)] {
    const trace::Span span("program", "update", {.step = step});
    CopyStatistics();
    Work(WorkKind::kUpdate, step);
    const std::string body = Await(Kind::kDone);
    double rate = 0;
    if (body.size() == sizeof rate) std::memcpy(&rate, body.data(), sizeof rate);
    pool_->Post([done, rate] { done(rate); });
    AwaitNext();
  });
}

// Variables that are averaged are not the optimizer's.
void ProgramUpdater::CopyStatistics() const {
  for (const Variable& variable : layout_.variables()) {
    if (variable.kind != Variable::Kind::kStatistic) continue;
    std::ranges::copy(gradient().subspan(variable.offset, variable.count),
                      weights().begin() + static_cast<std::ptrdiff_t>(variable.offset));
  }
}

void ProgramUpdater::Save(int64_t step, std::function<void(State)> done) {
  const auto saving = std::make_shared<Saving>(Saving{step, std::move(done)});
  ++wanted_;
  {
    const std::lock_guard lock(mutex_);
    saving_ = saving;
  }
  Submit([this] {
    if (Fetch()) AwaitNext();  // otherwise the program has given it while it waited for a value
  });
  thread_->Submit([this, saving] {
    if (saving->done) pool_->Post([saving] { saving->done(nullptr); });
  });
}

bool ProgramUpdater::IsSaving() {
  const std::lock_guard lock(mutex_);
  return saving_ != nullptr;
}

bool ProgramUpdater::Fetch() {
  std::shared_ptr<Saving> saving;
  {
    const std::lock_guard lock(mutex_);
    saving.swap(saving_);
  }
  if (!saving) return false;
  Work(WorkKind::kSave, saving->step);
  const auto state = std::make_shared<std::string>();
  std::string body;
  while (Receive(body) == Kind::kState) *state += body;
  pool_->Post([done = std::exchange(saving->done, nullptr), state] { done(state); });
  return true;
}

void ProgramUpdater::End(int64_t steps) {
  ++wanted_;
  Submit([this, steps] {
    --wanted_;
    const program::End end{.code = 0, .has_last_weights = 1, .steps = steps};
    link_->Send(Kind::kEnd, &end, sizeof end);
    told_end_ = true;
  });
}

bool ProgramUpdater::HasEnded(std::string& trouble) {
  trouble.clear();
  if (failed_) {
    trouble = error_->what();
    return true;
  }
  int status = 0;
  if (!told_end_ || !AwaitEnd(pid_, {}, status)) return false;
  pid_ = -1;
  if (status != 0) trouble = EndText(status) + " after the run; its messages are in server.log";
  return true;
}

void ProgramUpdater::Work(WorkKind kind, int64_t step) {
  --wanted_;
  const uint64_t key[] = {config_.run().seed(), static_cast<uint64_t>(kind),
                          static_cast<uint64_t>(step)};
  const Batch batch = start_.plan.At(step);
  const program::Work work{.kind = kind,
                           .step = step,
                           .epoch = batch.epoch,
                           .index = 0,
                           .samples = 0,
                           .batch = batch.samples,
                           .seed = XXH3_64bits(key, sizeof key)};
  link_->Send(Kind::kWork, &work, sizeof work);
}

Kind ProgramUpdater::Receive(std::string& body) {
  ProgramLink::Received received = link_->Receive();
  while (Talks(received)) received = link_->Receive();
  body = std::move(received.body);
  return received.kind;
}

bool ProgramUpdater::Talks(const ProgramLink::Received& received) {
  if (received.kind == Kind::kFailed) {
    const program::End end{.code = 0, .has_last_weights = 0, .steps = 0};
    link_->Send(Kind::kEnd, &end, sizeof end);  // muster_fail waits for it
    throw Error(ExitCode::kUsage, "{} (in the process that updates the weights)",
                Printable(received.body));
  }
  if (received.kind == Kind::kAsk) Answer(received);
  if (received.kind == Kind::kTell) Tell(received);
  return received.kind == Kind::kAsk || received.kind == Kind::kTell;
}

void ProgramUpdater::Tell(const ProgramLink::Received& received) {
  std::string text;
  const auto told = received.Begin<program::Tell>(text);
  const size_t key_bytes = std::min<size_t>(told.key_bytes, text.size());
  wire::Tell tell;
  tell.set_key(text.substr(0, key_bytes));
  tell.set_step(told.step);
  tell.set_value(text.substr(key_bytes));
  pool_->Post([this, tell] { tell_(tell); });
}

void ProgramUpdater::AwaitNext() {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kPatience{100};
  const std::chrono::duration<double> limit(config_.deadlines().first_step_s());
  const std::chrono::duration<double> saving_limit(config_.deadlines().once_s());
  Clock::time_point idle = Clock::now();    // since when nobody has needed it
  Clock::time_point saving = Clock::now();  // the same for its state, which can wait
  while (!closing_) {
    const int wanted = wanted_;
    if (wanted == 0) saving = Clock::now();
    if (wanted == 0 || (wanted == 1 && IsSaving())) idle = Clock::now();
    if (Clock::now() - idle > limit || Clock::now() - saving > saving_limit) link_->Silent();
    if (!link_->HasInput(kPatience)) continue;
    const ProgramLink::Received received = link_->Receive();
    if (Talks(received)) {
      idle = saving = Clock::now();  // it may have waited for others
      continue;
    }
    if (received.kind == Kind::kNext) return;
    throw Unexpected(received.kind, Kind::kNext);
  }
}

void ProgramUpdater::Answer(const ProgramLink::Received& received) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kPatience{100};
  std::string key;
  const auto ask = received.Begin<program::Ask>(key);
  const std::chrono::duration<double> limit(config_.deadlines().once_s());
  const Clock::time_point began = Clock::now();
  const bool is_past = ask.step < start_.first_step;
  std::optional<ToldValues::Value> value = values_->Find(key);
  while (!value && !is_past && !closing_ && Clock::now() - began <= limit) {
    if (values_->is_closed() && ask.may_save == 0) break;
    if (ask.may_save != 0) (void)Fetch();
    value = values_->Await(key, kPatience);
  }
  // The program's code that follows may fail, or last.
  if (value && ask.may_save != 0) (void)Fetch();
  if (!value && !is_past) {
    throw Error(ExitCode::kDeadline,
                "the process of the program that updates the weights (MUSTER_RANK=-1) has waited "
                "for {} until {}",
                Printable(key),
                Clock::now() - began > limit ? "deadlines.once_s was over" : "the run ended");
  }
  const program::Answer kind{
      .kind = static_cast<uint32_t>(value ? wire::Answer::VALUE : wire::Answer::ABSENT)};
  link_->Send(Kind::kAnswer, &kind, sizeof kind, {}, value ? value->bytes : "");
}

std::string ProgramUpdater::Await(Kind kind) {
  std::string body;
  const Kind got = Receive(body);
  if (got == kind) return body;
  throw Unexpected(got, kind);
}

Error ProgramUpdater::Lost(const Error& error) {
  int status = 0;
  if (closing_ || !AwaitEnd(pid_, kGrace, status) || closing_) return error;
  pid_ = -1;
  return Error(WasKilled(status) ? ExitCode::kProcessDied : ExitCode::kPeerFailed,
               "{}; its messages are in server.log", EndText(status));
}

void ProgramUpdater::Fail(const Error& error) {
  error_ = error;
  failed_ = true;
  if (pool_ == nullptr) return;
  pool_->Post([this] {
    if (on_failure_) on_failure_(*error_);
  });
}

}  // namespace muster
