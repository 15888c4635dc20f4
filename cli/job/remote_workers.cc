#include "cli/job/remote_workers.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/job/job_display.h"
#include "cli/job/workers_over_ssh.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/config/config.h"

namespace muster {
namespace {

// A host on which a killed worker runs for longer does not answer.
constexpr std::chrono::seconds kKillTime{5};

// A failing disk must not stop a run: the worker then has no log.
UniqueFd OpenWorkerLog(const std::string& path, bool append) {
  try {
    return OpenPlainFile(path, "a log file", O_WRONLY | O_CREAT | O_APPEND | (append ? 0 : O_TRUNC),
                         0666);
  } catch (const Error&) {
    return {};
  }
}

void WriteLine(const UniqueFd& log, const std::string& line) {
  const std::string text = line + "\n";
  if (log.valid()) (void)!::write(log.get(), text.data(), text.size());
}

}  // namespace

RemoteWorkers::RemoteWorkers(const JobPlan& plan, const std::string& host, int first_rank,
                             const std::string& endpoint, Console& console)
    : plan_(plan),
      console_(console),
      first_rank_(first_rank),
      connection_(plan.hosts->ssh, host),
      ssh_log_(OpenWorkerLog(plan.dir->SshLogPath(), /*append=*/true)) {
  connection_.Send({{"job",
                     {{"config", ConfigText(ForOtherHosts(*plan.config))},
                      {"token", plan.token},
                      {"endpoint", endpoint}}}});
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
  connection_.Read([&](const nlohmann::json& message) { Handle(message, ended); },
                   [this](const std::string& text) { LogText(text); });
  const bool hangs = std::ranges::any_of(workers_, [](const Worker& worker) {
    return worker.running && worker.killed_at && Clock::now() - *worker.killed_at > kKillTime;
  });
  if (hangs) connection_.GiveUp();
  if (connection_.ended()) Lose(ended);
}

// The agent is of this version. Messages of something else that prints JSON do not fit.
void RemoteWorkers::Handle(const nlohmann::json& message, std::vector<EndedProcess>& ended) {
  try {
    const auto of = [&](const char* key) -> Worker& {
      return workers_.at(static_cast<size_t>(message.at(key).get<int>() - first_rank_));
    };
    if (message.contains("started")) {
      of("started").pid = message.at("pid").get<pid_t>();
    } else if (message.contains("line")) {
      WriteLine(of("rank").log, message.at("line").get<std::string>());
    } else {
      Worker& worker = of("ended");
      worker.running = false;
      ended.push_back({message.at("ended").get<int>(),
                       worker.pid,
                       {.by_signal = message.at("by_signal").get<bool>(),
                        .value = message.at("value").get<int>(),
                        .asked = message.at("asked").get<bool>()}});
    }
  } catch (const std::exception&) {
    LogText(message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
}

void RemoteWorkers::Lose(std::vector<EndedProcess>& ended) {
  lost_ = true;
  std::vector<uint32_t> ranks;
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    if (!std::exchange(worker.running, false)) continue;
    const int rank = first_rank_ + static_cast<int>(i);
    ranks.push_back(static_cast<uint32_t>(rank));
    ended.push_back(
        {rank, worker.pid, {.value = static_cast<int>(ExitCode::kFailure), .asked = worker.asked}});
  }
  if (ranks.empty() || stopping_) return;
  console_.Print(fmt::format("Warning: {}; without {}", Trouble(), RankList(ranks)));
}

void RemoteWorkers::LogText(const std::string& text) {
  WriteLine(ssh_log_, fmt::format("{}: {}", connection_.name(), text));
}

}  // namespace muster
