#include "cli/job/remote_workers.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "cli/job/job_display.h"
#include "cli/job/workers_over_ssh.h"
#include "cli/trace/merge.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/config/config.h"

namespace muster {
namespace {

// A host that says nothing for longer, although it must kill its workers, is gone.
constexpr std::chrono::seconds kKillTime{5};
// A worker may be slow to die: in a system call, or while its memory is freed.
constexpr std::chrono::seconds kUndeadTime{30};
// The workers of a lost server may still have their GPUs.
constexpr std::chrono::seconds kOldWorkersTime{20};
// A host that does not go on with its parts of the trace has none.
constexpr std::chrono::seconds kTraceTime{10};

// A failing disk must not stop a run: the worker then has no log.
UniqueFd OpenWorkerLog(const std::string& path, bool append) {
  try {
    return OpenPlainFile(path, "a log file",
                         O_WRONLY | O_CREAT | O_APPEND | (append ? 0 : O_TRUNC));
  } catch (const Error&) {
    return {};
  }
}

void WriteLine(const UniqueFd& log, const std::string& line) {
  const std::string text = line + "\n";
  if (log.valid()) (void)!::write(log.get(), text.data(), text.size());
}

// What a program may need to find its interpreter and libraries. Shells that ssh starts read less
// of a user's settings than a terminal's.
std::vector<std::string> PassedEnvironment() {
  std::vector<std::string> passed;
  for (const char* name :
       {"PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const char* const value = std::getenv(name))
      passed.push_back(fmt::format("{}={}", name, value));
  }
  return passed;
}

const Host& HostNamed(const JobPlan& plan, const std::string& name) {
  return *std::ranges::find(plan.hosts->hosts, name, &Host::name);
}

nlohmann::json RelayFor(const JobPlan& plan, const std::string& name) {
  const std::vector<Host>& hosts = plan.hosts->hosts;
  const auto host = static_cast<size_t>(&HostNamed(plan, name) - hosts.data());
  const RelayPlan relay = PlanRelay(*plan.config, hosts, host);
  return {{"used", relay.used}, {"bind", relay.bind}, {"via", relay.via}};
}

}  // namespace

RemoteWorkers::RemoteWorkers(const JobPlan& plan, const std::string& host, int first_rank,
                             const std::string& endpoint, Console& console)
    : plan_(plan),
      console_(console),
      first_rank_(first_rank),
      connection_(PatientSsh(plan.hosts->ssh, plan.config->deadlines().silence_s()), host),
      ssh_log_(OpenWorkerLog(plan.dir->SshLogPath(), /*append=*/true)) {
  connection_.Send({{"job",
                     {{"config", ConfigText(*plan.config)},
                      {"token", plan.token},
                      {"endpoint", endpoint},
                      {"folder", std::filesystem::current_path().string()},
                      {"environment", PassedEnvironment()},
                      {"gpus",
                       {{"workers", HostNamed(plan, host).slots},
                        {"for", plan.dir->shown()},
                        {"wait_s", plan.goes_on() ? kOldWorkersTime.count() : 0}}},
                      {"relay", RelayFor(plan, host)}}}});
}

void RemoteWorkers::Start(int rank) {
  const auto local_rank = static_cast<size_t>(rank - first_rank_);
  const bool again = local_rank < workers_.size();
  if (!again) workers_.emplace_back();
  Of(rank) = {.running = true,
              .log = OpenWorkerLog(plan_.dir->WorkerLogPath(rank), again || plan_.goes_on())};
  connection_.Send({{"start", rank}, {"local_rank", local_rank}});
}

void RemoteWorkers::Signal(int rank, int signal) {
  Worker& worker = Of(rank);
  if (!worker.running) return;
  worker.asked = true;
  if (signal == SIGTERM) stopping_ = true;
  if (signal == SIGKILL && !worker.killed_at) worker.killed_at = Clock::now();
  connection_.Send({{"signal", signal}, {"rank", rank}});
}

std::string RemoteWorkers::Trouble() const {
  return fmt::format("lost the host {}: {}", connection_.name(), connection_.Trouble());
}

void RemoteWorkers::TakeEnds(std::vector<EndedProcess>& ended) {
  if (lost_) return;
  connection_.Read(
      [&](const nlohmann::json& message) {
        heard_at_ = Clock::now();
        Handle(message, ended);
      },
      [this](const std::string& text) {
        heard_at_ = Clock::now();
        LogText(text);
      });
  if (IsSilent()) connection_.GiveUp();
  TellUndead();
  if (connection_.ended()) Lose(ended);
}

bool RemoteWorkers::AwaitsTrace() const {
  if (lost_ || Clock::now() - heard_at_ > kTraceTime) return false;
  return std::ranges::any_of(workers_, [](const Worker& worker) {
    return !worker.running && !worker.lost && !worker.trace_ended;
  });
}

// The first line says how to align the part (cli/trace/merge.h).
void RemoteWorkers::TakeTrace(const nlohmann::json& message) {
  const int rank = message.at("rank").get<int>();
  Worker& worker = workers_.at(static_cast<size_t>(rank - first_rank_));
  const auto text = message.at("trace").get<std::string>();
  if (!worker.trace.valid() && !text.empty()) {
    const std::string path =
        plan_.dir->TraceParts(plan_.workers()).at(static_cast<size_t>(rank) + 1);
    worker.trace = OpenWorkerLog(path, /*append=*/false);
    WriteLine(worker.trace, ClockLine(rank + 2, HostNamed(plan_, host()).clock_ahead_s));
  }
  if (worker.trace.valid()) (void)!::write(worker.trace.get(), text.data(), text.size());
  worker.trace_ended = message.at("last").get<bool>();
  if (worker.trace_ended) worker.trace.Reset();
}

// Whether the host has said nothing since all workers that run there should have been killed.
bool RemoteWorkers::IsSilent() const {
  bool waits = false;
  for (const Worker& worker : workers_) {
    if (!worker.running) continue;
    if (!worker.killed_at || worker.was_killed) return false;
    if (Clock::now() - std::max(*worker.killed_at, heard_at_) <= kKillTime) return false;
    waits = true;
  }
  return waits;
}

void RemoteWorkers::TellUndead() {
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    if (!worker.running || !worker.killed_at || worker.is_told) continue;
    if (Clock::now() - *worker.killed_at <= kUndeadTime) continue;
    worker.is_told = true;
    console_.Print(fmt::format("Warning: {} on {} has not ended within {} s of SIGKILL",
                               Name(first_rank_ + static_cast<int>(i), worker.pid),
                               connection_.name(), kUndeadTime.count()));
  }
}

// The agent is of this version. Messages of something else that prints JSON do not fit.
void RemoteWorkers::Handle(const nlohmann::json& message, std::vector<EndedProcess>& ended) {
  try {
    const auto of = [&](const char* key) -> Worker& {
      return workers_.at(static_cast<size_t>(message.at(key).get<int>() - first_rank_));
    };
    if (message.contains("started")) {
      of("started").pid = message.at("pid").get<pid_t>();
    } else if (message.contains("unstarted")) {
      of("unstarted").running = false;
      ended.push_back({.rank = message.at("unstarted").get<int>(),
                       .not_started = fmt::format("{} on {}", message.at("why").get<std::string>(),
                                                  connection_.name())});
    } else if (message.contains("signaled")) {
      if (message.at("signal").get<int>() == SIGKILL) of("signaled").was_killed = true;
    } else if (message.contains("trace")) {
      TakeTrace(message);
    } else if (message.contains("line")) {
      WriteLine(of("rank").log, message.at("line").get<std::string>());
    } else {
      const ChildEnd end{.by_signal = message.at("by_signal").get<bool>(),
                         .value = message.at("value").get<int>(),
                         .asked = message.at("asked").get<bool>()};
      if (message.contains("relay")) return TellRelaysEnd(end);
      Worker& worker = of("ended");
      worker.running = false;
      worker.trace_ended = false;  // it comes next
      ended.push_back({message.at("ended").get<int>(), worker.pid, end});
    }
  } catch (const std::exception&) {
    LogText(JsonText(message));
  }
}

// Its workers are lost with it. Without a server, or without workers, it ends by itself.
void RemoteWorkers::TellRelaysEnd(const ChildEnd& end) {
  const auto code = static_cast<ExitCode>(end.value);
  const bool by_itself = !end.by_signal && (code == ExitCode::kOk || code == ExitCode::kPeerFailed);
  if (by_itself || stopping_) return;
  console_.Print(fmt::format("Warning: lost the relay of host {}, and its workers with it: {}",
                             connection_.name(), EndText(end)));
}

void RemoteWorkers::Lose(std::vector<EndedProcess>& ended) {
  lost_ = true;
  std::vector<uint32_t> ranks;
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    if (!std::exchange(worker.running, false)) continue;
    worker.lost = true;
    const int rank = first_rank_ + static_cast<int>(i);
    ranks.push_back(static_cast<uint32_t>(rank));
    ended.push_back({rank,
                     worker.pid,
                     {.value = static_cast<int>(ExitCode::kProcessDied), .asked = worker.asked},
                     connection_.name()});
  }
  if (ranks.empty() || stopping_) return;
  console_.Print(fmt::format("Warning: {}; without {}", Trouble(), RankList(ranks)));
}

void RemoteWorkers::LogText(const std::string& text) {
  WriteLine(ssh_log_, fmt::format("{}: {}", connection_.name(), text));
}

}  // namespace muster
