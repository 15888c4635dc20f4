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
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/link/program_variables.h"
#include "common/trace/trace.h"

namespace muster {
namespace {

using program::Kind;
using program::WorkKind;

constexpr size_t kPieceBytes = 4 << 20;
constexpr std::chrono::seconds kGrace{5};  // for the program to end after the run

std::vector<std::string> Environment(const config::Config& config, const std::string& config_path,
                                     const std::string& endpoint, int fd) {
  std::vector<std::string> all{
      "MUSTER_ENDPOINT=" + endpoint, "MUSTER_CONFIG=" + config_path, "MUSTER_RANK=-1",
      fmt::format("MUSTER_UPDATE_FD={}", fd),
      fmt::format("OMP_NUM_THREADS={}", config.server().threads()),
      // The server's variables are in the memory of the host.
      "CUDA_VISIBLE_DEVICES=",
      "MUSTER_PROGRAMS=" + std::filesystem::read_symlink("/proc/self/exe").parent_path().string()};
  const size_t own = all.size();
  for (char** at = ::environ; *at != nullptr; ++at) {
    const std::string text = *at;
    const std::string name = text.substr(0, text.find('=') + 1);
    const bool known = std::any_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(own),
                                   [&](const std::string& one) { return one.starts_with(name); });
    if (!known && name != "MUSTER_TOKEN=") all.push_back(text);
  }
  return all;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Between fork and exec, a process of several threads may only make system calls.
[[noreturn]] void Exec(pid_t parent, int fd, char* const* words, char* const* environment) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  ::fcntl(fd, F_SETFD, 0);
  ::execvpe(words[0], words, environment);
  ::_exit(127);
}

bool HasEnded(pid_t pid, std::chrono::steady_clock::duration patience, int& status) {
  const auto until = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const pid_t got = ::waitpid(pid, &status, WNOHANG);
    if (got != 0) return true;
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
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
  link_.emplace(UniqueFd(ends[0]));
  const UniqueFd theirs(ends[1]);
  std::vector<std::string> words{config_.worker().program().begin(),
                                 config_.worker().program().end()};
  std::vector<std::string> environment = Environment(config_, config_path, endpoint, theirs.get());
  const std::vector<char*> word_pointers = Pointers(words), pointers = Pointers(environment);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) Exec(parent, theirs.get(), word_pointers.data(), pointers.data());
  pid_ = child;
  if (child < 0) throw Error(ExitCode::kFailure, "fork: {}", std::strerror(errno));
  LogInfo("process {} of the program will update the weights", child);
}

ProgramUpdater::~ProgramUpdater() {
  const auto kill = [this] {
    closing_ = true;
    if (pid_ > 0) ::kill(-pid_, SIGKILL);
  };
  if (!completed_) kill();  // the thread may wait for the program
  thread_.reset();
  kill();
  int status = 0;
  if (pid_ > 0) (void)HasEnded(pid_, kGrace, status);
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
                "the program's copy that updates the weights (MUSTER_RANK=-1) has other {} than "
                "the workers'",
                same_data ? "variables" : "data or constants");
  }
  layout_ = layout;
  plan_ = start.plan;
  link_->MapMemory(layout_.arena_floats());
  Submit([this, start = std::make_shared<Start>(std::move(start))] { Send(*start); });
}

void ProgramUpdater::Send(const Start& start) {
  const program::Joined joined{.rank = -1,
                               .first_step = start.first_step,
                               .total_steps = start.plan.total_steps,
                               .steps_per_epoch = start.plan.StepsPerEpoch(),
                               .slices = start.plan.slices,
                               .state_bytes = std::ssize(start.state)};
  link_->Send(Kind::kJoined, &joined, sizeof joined);
  for (size_t at = 0; at < start.state.size(); at += kPieceBytes) {
    link_->Send(Kind::kRestored, start.state.data() + at,
                std::min(kPieceBytes, start.state.size() - at));
  }
}

void ProgramUpdater::Attach(ThreadPool& pool, std::function<void(const Error&)> failed) {
  pool_ = &pool;
  on_failure_ = std::move(failed);
  link_->Limit(config_.deadlines().first_step_s());
}

void ProgramUpdater::Update(int64_t step, std::function<void()> done) {
  Submit([this, step, done = std::move(done)] {
    const trace::Span span("program", "update", {.step = step});
    CopyStatistics();
    Work(WorkKind::kUpdate, step);
    Await(Kind::kDone);
    pool_->Post(done);
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
  const auto state = std::make_shared<std::string>();
  const auto saved = std::make_shared<bool>(false);
  Submit([this, step, state, saved] {
    Work(WorkKind::kSave, step);
    std::string body;
    while (Receive(body) == Kind::kState) *state += body;
    *saved = true;
  });
  thread_->Submit([this, state, saved, done = std::move(done)] {
    pool_->Post([done, state = *saved ? state : nullptr] { done(state); });
  });
}

void ProgramUpdater::End(int64_t steps) {
  completed_ = true;
  Submit([this, steps] {
    closing_ = true;
    link_->Limit(kGrace.count());
    Await(Kind::kNext);
    const program::End end{.code = 0, .has_last_weights = 1, .steps = steps};
    link_->Send(Kind::kEnd, &end, sizeof end);
    int status = 0;
    if (HasEnded(pid_, kGrace, status)) pid_ = -1;
  });
}

void ProgramUpdater::Work(WorkKind kind, int64_t step) {
  Await(Kind::kNext);
  const uint64_t key[] = {config_.run().seed(), static_cast<uint64_t>(kind),
                          static_cast<uint64_t>(step)};
  const Batch batch = plan_.At(step);
  const program::Work work{.kind = kind,
                           .unused = 0,
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
  if (received.kind == Kind::kFailed) {
    const program::End end{.code = 0, .has_last_weights = 0, .steps = 0};
    link_->Send(Kind::kEnd, &end, sizeof end);  // muster_fail waits for it
    throw Error(ExitCode::kUsage, "{}", Printable(received.body));
  }
  body = std::move(received.body);
  return received.kind;
}

void ProgramUpdater::Await(Kind kind) {
  std::string body;
  const Kind got = Receive(body);
  if (got == kind) return;
  throw Error(ExitCode::kFailure, "the process that updates the weights sent frame {}, expected {}",
              static_cast<uint32_t>(got), static_cast<uint32_t>(kind));
}

Error ProgramUpdater::Lost(const Error& error) {
  int status = 0;
  const pid_t pid = pid_;
  if (closing_ || !HasEnded(pid, kGrace, status)) return error;
  pid_ = -1;
  if (WIFEXITED(status)) {
    return Error(ExitCode::kPeerFailed,
                 "the process that updates the weights (pid {}) ended with exit code {}; see its "
                 "messages in the server's log",
                 pid, WEXITSTATUS(status));
  }
  LogError(
      "the process that updates the weights (pid {}) was killed by SIG{}; this server ends, "
      "too, so that both are restarted",
      pid, ::sigabbrev_np(WTERMSIG(status)));
  ::kill(::getpid(), SIGKILL);
  return error;
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
