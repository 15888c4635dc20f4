#include "cli/hosts/host_agent.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cli/gpu/job_gpus.h"
#include "cli/hosts/agent_answers.h"
#include "cli/hosts/trace_parts.h"
#include "cli/process/child_process.h"
#include "cli/process/held_file.h"
#include "cli/process/line_reader.h"
#include "cli/process/program_environment.h"
#include "cli/process/signal_source.h"
#include "cli/process/token.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/process.h"
#include "common/base/resource_limits.h"
#include "common/config/config.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr size_t kMostInputBytes = 64 << 20;  // a config may be long
constexpr size_t kMostLineBytes = 1 << 16;    // of a worker's output
constexpr size_t kMostPendingBytes = 4 << 20;
constexpr std::chrono::seconds kIdle{15};
constexpr std::chrono::seconds kLastWords{2};  // of workers whose relay has ended

class HostAgent {
 public:
  explicit HostAgent(const std::string& worker_program);

  int Run();

 private:
  struct Worker {
    std::unique_ptr<ChildProcess> process;  // null after its end
    LineReader output;
    int relay = 0;  // the number of its relay
  };

  void Wait();
  void Handle(const std::string& line);
  void TakeJob(const Json& job);
  void Start(int rank, int local_rank);
  // Starts a relay (worker/relay/relay.h), unless there is one.
  void RequireRelay(int rank);
  ChildOptions ProcessOptions(std::vector<std::string> arguments) const;
  ChildOptions ProgramOptions(int rank, const std::string& endpoint) const;
  std::unique_ptr<ChildProcess> StartWith(ChildOptions options, LineReader& output) const;
  void TakeGpus(const config::Config& config, const Json& wish);
  // Where the worker runs; null: anywhere.
  const WorkerPlace* PlaceFor(size_t local_rank, bool again);
  UniqueFd MakePipe(LineReader& output) const;
  void TakeOutput();
  void TakeLines(Worker& worker, int rank);
  // As much as the connection takes.
  void SendTraceParts();
  void Send(const Json& message);
  void SendEnd(const char* what, int rank, const ChildEnd& end);
  // Writes what the connection takes. A connection that takes nothing must not stop the agent.
  void Flush();

  const std::string worker_program_;
  SignalSource signals_;
  LineReader input_;
  std::string pending_;  // output that the connection did not take yet
  bool broken_ = false;  // the connection, for output
  std::optional<HeldFile> config_, token_;
  config::Worker job_;  // its part about workers
  uint64_t seed_ = 0;   // for programs, as slices_
  uint32_t slices_ = 1;
  std::unique_ptr<JobGpus> gpus_;    // locked; null without worker.backend=CUDA
  std::vector<WorkerPlace> places_;  // by local rank; empty: NVML shows no GPU
  std::optional<TraceParts> trace_parts_;
  std::string token_text_;
  std::vector<std::string> environment_;  // of the launcher, for a program
  std::string endpoint_;
  bool uses_relay_ = false;
  Worker relay_;
  std::string relay_endpoint_, relay_bind_, relay_via_;
  int relays_ = 0, relay_rank_ = 0;  // how many were started; the worker whose log has its output
  Clock::time_point relay_ended_;
  std::map<int, Worker> workers_;  // by rank
  Clock::time_point busy_at_ = Clock::now();
};

HostAgent::HostAgent(const std::string& worker_program)
    : worker_program_(worker_program), input_(UniqueFd(::dup(STDIN_FILENO)), kMostInputBytes) {
  ::fcntl(STDOUT_FILENO, F_SETFL, ::fcntl(STDOUT_FILENO, F_GETFL) | O_NONBLOCK);
}

int HostAgent::Run() {
  while (!broken_) {
    Wait();
    while (const std::optional<ReceivedSignal> signal = signals_.Next()) {
      if (signal->number != SIGCHLD && signal->number != SIGUSR1) return 128 + signal->number;
    }
    input_.Read([this](const std::string& line) { Handle(line); });
    if (input_.at_end()) return 0;
    TakeOutput();
    SendTraceParts();
    Flush();
    for (const auto& [rank, worker] : workers_) {
      if (worker.process != nullptr) busy_at_ = Clock::now();
    }
    // Other hosts may need it; it ends when nobody does.
    if (relay_.process != nullptr) busy_at_ = Clock::now();
    if (Clock::now() - busy_at_ > kIdle) return static_cast<int>(ExitCode::kDeadline);
  }
  return static_cast<int>(ExitCode::kPeerFailed);
}

void HostAgent::Wait() {
  std::vector<pollfd> events{{.fd = input_.fd(), .events = POLLIN},
                             {.fd = signals_.fd(), .events = POLLIN}};
  if (!pending_.empty()) events.push_back({.fd = STDOUT_FILENO, .events = POLLOUT});
  for (const auto& [rank, worker] : workers_) {
    events.push_back({.fd = worker.output.fd(), .events = POLLIN});
  }
  if (relay_.output.fd() >= 0) events.push_back({.fd = relay_.output.fd(), .events = POLLIN});
  ::poll(events.data(), events.size(), 1000);
}

// The other side has the same version, so a message that does not fit comes from a person.
void HostAgent::Handle(const std::string& line) {
  const Json message = ParseJson(line);
  const SendAnswer send = [this](const Json& answer) { Send(answer); };
  try {
    if (message.contains("check")) {
      AnswerCheck(message.at("check"), send);
    } else if (message.contains("measure")) {
      AnswerMeasure(message.at("measure"), send);
    } else if (message.contains("connect")) {
      AnswerConnect(message.at("connect"), send);
    } else if (message.contains("job")) {
      TakeJob(message.at("job"));
    } else if (message.contains("start")) {
      Start(message.at("start").get<int>(), message.at("local_rank").get<int>());
    } else if (!message.contains("stay")) {
      const int rank = message.at("rank").get<int>(), signal = message.at("signal").get<int>();
      const auto worker = workers_.find(rank);
      if (worker == workers_.end() || worker->second.process == nullptr) return;
      worker->second.process->Signal(signal);
      Send({{"signaled", rank}, {"signal", signal}});
    }
  } catch (const Json::exception&) {
    throw Error(ExitCode::kUsage,
                "muster host: expected messages of `muster launch` on standard input; this command "
                "is only for it");
  }
  busy_at_ = Clock::now();
}

void HostAgent::TakeJob(const Json& job) {
  config::Config config = ParseConfigText(job.at("config").get<std::string>(), "the job's config");
  trace_parts_.emplace(config);
  config_ = HeldFile::OfText(ConfigText(config));
  token_text_ = job.at("token").get<std::string>();
  token_ = HeldFile::OfText(token_text_);
  job_ = config.worker();
  seed_ = config.run().seed();
  slices_ = config.run().slices();
  environment_ = job.at("environment").get<std::vector<std::string>>();
  const auto folder = job.at("folder").get<std::string>();
  if (job_.program_size() > 0 && ::chdir(folder.c_str()) != 0) {
    throw Error(ExitCode::kUsage,
                "cannot enter {}: {}; expected the program in the same place here", folder,
                ErrorText(errno));
  }
  endpoint_ = job.at("endpoint").get<std::string>();
  const Json& relay = job.at("relay");
  uses_relay_ = relay.at("used").get<bool>();
  relay_bind_ = relay.at("bind").get<std::string>();
  relay_via_ = relay.at("via").get<std::string>();
  relay_ = {};
  TakeGpus(config, job.at("gpus"));
}

// Returns the end to write to.
UniqueFd HostAgent::MakePipe(LineReader& output) const {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw StartError(ExitCode::kFailure, "cannot create a pipe for {}: {}", worker_program_,
                     ErrorText(errno));
  }
  output = LineReader(UniqueFd(ends[0]), kMostLineBytes);
  return UniqueFd(ends[1]);
}

std::unique_ptr<ChildProcess> HostAgent::StartWith(ChildOptions options, LineReader& output) const {
  const UniqueFd errors = MakePipe(output);
  options.error_fd = errors.get();
  if (options.program != worker_program_) options.output_fd = errors.get();
  return std::make_unique<ChildProcess>(options);
}

ChildOptions HostAgent::ProcessOptions(std::vector<std::string> arguments) const {
  const std::vector<std::string> job{"--config",     config_->InheritedPath(),
                                     "--token-file", token_->InheritedPath(),
                                     "--parent",     std::to_string(::getpid())};
  arguments.insert(arguments.end(), job.begin(), job.end());
  return {.program = worker_program_,
          .arguments = std::move(arguments),
          .inherited_fds = {config_->fd(), token_->fd()}};
}

ChildOptions HostAgent::ProgramOptions(int rank, const std::string& endpoint) const {
  const auto& words = job_.program();
  std::vector<std::string> environment = environment_;
  const std::vector<std::string> own = ProgramEnvironment({.endpoint = endpoint,
                                                           .config = config_->InheritedPath(),
                                                           .token = token_text_,
                                                           .worker_program = worker_program_,
                                                           .rank = rank,
                                                           .threads = job_.threads(),
                                                           .seed = seed_,
                                                           .slices = slices_});
  environment.insert(environment.end(), own.begin(), own.end());
  return {.program = words[0],
          .arguments = {words.begin() + 1, words.end()},
          .inherited_fds = {config_->fd()},
          .environment = std::move(environment),
          .takes_all_along = true};
}

void HostAgent::RequireRelay(int rank) {
  if (relay_.process != nullptr && relay_.process->stopped()) {
    // A new worker would wait for it as the one before.
    relay_.process.reset();  // kills it
    relay_ended_ = Clock::now();
    SendEnd("relay", rank, {.by_signal = true, .value = SIGKILL, .asked = true});
  }
  if (relay_.process != nullptr) return;
  // Workers of an earlier relay must not find this one, and nobody can take its name before.
  relay_endpoint_ = "local://@muster-relay-" + NewToken();
  ++relays_;
  relay_rank_ = rank;
  std::vector<std::string> arguments{"relay", "--listen", relay_endpoint_, "--endpoint", endpoint_};
  if (!relay_bind_.empty()) arguments.insert(arguments.end(), {"--bind", relay_bind_});
  if (!relay_via_.empty()) arguments.insert(arguments.end(), {"--via", relay_via_});
  // Once all have started, one that does not answer is probably lost, and a step waits.
  if (relays_ > 1) arguments.insert(arguments.end(), {"--patience", "2"});
  ChildOptions relay = ProcessOptions(std::move(arguments));
  relay.environment.emplace_back(kSeesNoGpu);
  relay_.process = StartWith(std::move(relay), relay_.output);
}

void HostAgent::TakeGpus(const config::Config& config, const Json& wish) {
  places_.clear();
  gpus_.reset();
  if (config.worker().backend() != config::Worker::CUDA) return;
  try {
    gpus_ = JobGpus::OfHost(config, wish.at("workers").get<uint32_t>(),
                            wish.at("for").get<std::string>());
    if (!gpus_->wanted()) return;
    gpus_->Take({.wait_s = wish.at("wait_s").get<double>()});
  } catch (const Error& error) {
    // In one line, for the launcher. It cannot wait.
    std::string text = error.what();
    for (size_t at = 0; (at = text.find("\n  ")) != std::string::npos;) text.replace(at, 3, "; ");
    throw Error(error.code(), text.substr(0, text.find("; --wait")));
  }
  places_ = gpus_->Places();
}

const WorkerPlace* HostAgent::PlaceFor(size_t local_rank, bool again) {
  if (places_.empty()) return nullptr;
  WorkerPlace& place = places_.at(local_rank);
  if (again) place = gpus_->PlaceAgain(static_cast<uint32_t>(local_rank));
  return &place;
}

// The launcher decides whether and when it tries again. The other workers go on.
void HostAgent::Start(int rank, int local_rank) {
  try {
    if (!config_ || !token_) throw StartError(ExitCode::kUsage, "there is no job yet");
    if (uses_relay_) RequireRelay(rank);
    const std::string& endpoint = uses_relay_ ? relay_endpoint_ : endpoint_;
    const bool again = workers_.contains(rank);
    Worker& worker = workers_[rank];
    worker.relay = relays_;
    ChildOptions options =
        job_.program_size() > 0
            ? ProgramOptions(rank, endpoint)
            : ProcessOptions({"train", "--rank", std::to_string(rank), "--local-rank",
                              std::to_string(local_rank), "--endpoint", endpoint});
    PutWorker(PlaceFor(static_cast<size_t>(local_rank), again), job_, options);
    worker.process = StartWith(std::move(options), worker.output);
    Send({{"started", rank}, {"pid", worker.process->pid()}});
  } catch (const StartError& error) {
    Send({{"unstarted", rank}, {"why", error.what()}});
  }
}

void HostAgent::TakeLines(Worker& worker, int rank) {
  worker.output.Read([this, rank](const std::string& line) {
    Send({{"line", line}, {"rank", rank}});
  });
}

void HostAgent::TakeOutput() {
  std::optional<ChildEnd> relays_end;
  if (relay_.process != nullptr) relays_end = relay_.process->CheckEnd();
  TakeLines(relay_, relay_rank_);
  if (relays_end) {
    relay_.process.reset();
    relay_ended_ = Clock::now();
    SendEnd("relay", relay_rank_, *relays_end);
  }
  for (auto& [rank, worker] : workers_) {
    std::optional<ChildEnd> end;
    if (worker.process != nullptr) end = worker.process->CheckEnd();
    // Most end with their relay, but those that have not reached it would wait for long.
    const bool waits_in_vain = worker.process != nullptr && !end && uses_relay_ &&
                               (relay_.process == nullptr || worker.relay < relays_) &&
                               Clock::now() - relay_ended_ > kLastWords;
    if (waits_in_vain) worker.process->Signal(SIGKILL);
    TakeLines(worker, rank);  // after the end, so that its last words come before it
    if (!end) continue;
    worker.process.reset();
    SendEnd("ended", rank, *end);
    trace_parts_->Take(rank);
  }
}

void HostAgent::SendTraceParts() {
  while (trace_parts_ && pending_.size() < kMostPendingBytes && !broken_) {
    const std::optional<Json> piece = trace_parts_->Next();
    if (!piece) return;
    Send(*piece);
    busy_at_ = Clock::now();
  }
}

void HostAgent::SendEnd(const char* what, int rank, const ChildEnd& end) {
  Send({{what, rank}, {"by_signal", end.by_signal}, {"value", end.value}, {"asked", end.asked}});
}

void HostAgent::Send(const Json& message) {
  if (pending_.size() > kMostPendingBytes && message.contains("line")) return;
  pending_ += JsonText(message) + "\n";
  Flush();
}

void HostAgent::Flush() {
  while (!pending_.empty() && !broken_) {
    const ssize_t written = ::write(STDOUT_FILENO, pending_.data(), pending_.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) return;
    if (written < 0) broken_ = true;
    if (written > 0) pending_.erase(0, static_cast<size_t>(written));
  }
}

}  // namespace

int RunHostAgent(const std::string& worker_program) {
  KeepOutOfCoreDumps();  // this process gets the token
  // A check does not read standard input while it counts samples, and must not outlive sshd either.
  DieWithParent(::getppid());
  return HostAgent(worker_program).Run();
}

}  // namespace muster
