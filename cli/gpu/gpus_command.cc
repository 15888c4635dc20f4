#include "cli/gpu/gpus_command.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <map>
#include <memory>

#include "cli/gpu/gpu.h"
#include "cli/gpu/gpu_plan.h"
#include "cli/gpu/job_gpus.h"
#include "cli/gpu/lock_folder.h"
#include "cli/gpu/process_info.h"
#include "cli/gpu/take_gpus.h"
#include "cli/gpu/ticket.h"
#include "cli/gpu/usage.h"
#include "cli/gpu/visible_devices.h"
#include "cli/text/console.h"
#include "cli/text/json_value.h"
#include "cli/text/text_table.h"
#include "cli/text/units.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/resource_limits.h"
#include "common/base/text.h"

namespace muster {
namespace {

using Json = nlohmann::json;

// In MiB, like nvidia-smi.
std::string Mebibytes(uint64_t bytes) {
  return FormatCount(static_cast<int64_t>(bytes / (1024 * 1024)));
}

template <typename Number>
std::string OrDash(const std::optional<Number>& number, const char* unit) {
  return number ? fmt::format("{:.0f}{}", static_cast<double>(*number), unit) : "-";
}

// The jobs that hold or want GPUs, and, by UUID, those who have locked one without a ticket.
struct GpuJobs {
  std::vector<TicketText> tickets;
  std::map<std::string, std::string> lockers;

  bool Hold(const Gpu& gpu) const {
    return HolderOf(tickets, gpu.uuid) != nullptr || lockers.contains(gpu.uuid);
  }
};

GpuJobs ReadJobs(const GpuSnapshot& seen) {
  const LockFolder folder = LockFolder::OfHost();
  GpuJobs jobs{.tickets = ReadTickets(folder), .lockers = {}};
  for (const Gpu& gpu : seen.gpus) {
    if (gpu.uuid.empty() || jobs.Hold(gpu)) continue;
    const std::string holder = folder.LockHolder(gpu.uuid);
    if (!holder.empty()) jobs.lockers[gpu.uuid] = holder;
  }
  return jobs;
}

std::string StateText(const Gpu& gpu, bool held) {
  if (!gpu.trouble.empty()) return gpu.trouble;
  const uint64_t errors = gpu.ecc_errors.value_or(0);
  return fmt::format("{}{}",
                     held                      ? "taken"
                     : WhyBusy(gpu, 0).empty() ? "idle"
                                               : "busy",
                     errors == 0 ? "" : fmt::format(", {} ECC errors", errors));
}

std::vector<std::string> TableLines(const GpuSnapshot& seen, const GpuJobs& jobs) {
  TextTable table({{"GPU", true},
                   {"state"},
                   {"name"},
                   {"used", true},
                   {"free", true, 1},
                   {"MiB", true},
                   {"busy", true, 2},
                   {"temp", true, 3},
                   {"power", true, 4},
                   {"PCI", false, 5},
                   {"UUID", false, 6}});
  for (const Gpu& gpu : seen.gpus) {
    table.AddRow({gpu.index, StateText(gpu, jobs.Hold(gpu)), gpu.name, Mebibytes(gpu.used_bytes),
                  Mebibytes(gpu.free_bytes), Mebibytes(gpu.total_bytes),
                  OrDash(gpu.sensors.utilization, " %"), OrDash(gpu.sensors.temperature, " C"),
                  OrDash(gpu.sensors.power_w, " W"), gpu.pci, gpu.uuid});
  }
  return table.Lines(ResultWidth());
}

std::string SinceText(const ProcessText& process) {
  return process.since ? ClockText(*process.since) : "-";
}

// Lists processes that compute or draw, and jobs that hold GPUs or wait for them.
std::vector<std::string> UserLines(const GpuSnapshot& seen, const GpuJobs& jobs) {
  TextTable table({{"GPU", true}, {"pid", true}, {"owner"}, {"MiB", true}, {"since"}, {"what"}});
  bool any = false;
  const auto add = [&](std::vector<std::string> row) {
    any = true;
    table.AddRow(std::move(row));
  };
  for (const Gpu& gpu : seen.gpus) {
    if (const TicketText* const job = HolderOf(jobs.tickets, gpu.uuid)) {
      add({gpu.index, std::to_string(job->pid), UserName(job->user), "-", ClockText(job->changed),
           "holds it: " + job->what});
    }
    if (const auto locker = jobs.lockers.find(gpu.uuid); locker != jobs.lockers.end()) {
      add({gpu.index, "-", "-", "-", "-", "its lock is held by " + locker->second});
    }
    for (const GpuProcess& process : gpu.processes) {
      const ProcessText text = DescribeProcess(process.pid);
      add({gpu.index, std::to_string(process.pid), text.seen ? text.user : "not visible",
           process.bytes ? Mebibytes(*process.bytes) : "-", SinceText(text), text.command});
    }
  }
  for (const TicketText& job : jobs.tickets) {
    if (job.state == TicketState::kHolding) continue;
    add({"-", std::to_string(job.pid), UserName(job.user), "-", "-",
         fmt::format("waits for {}: {}", Plural(static_cast<int64_t>(job.wants), "GPU"),
                     job.what)});
  }
  return any ? table.Lines() : std::vector<std::string>{"No processes or jobs use them."};
}

Json ProcessJson(const GpuProcess& process) {
  const ProcessText text = DescribeProcess(process.pid);
  return {{"pid", process.pid},
          {"used_bytes", OrNull(process.bytes)},
          {"computes", process.computes},
          {"owner", text.seen ? Json(text.user) : Json(nullptr)},
          {"command", text.seen ? Json(text.command) : Json(nullptr)},
          {"since", OrNull(text.since)}};
}

Json GpuJson(const Gpu& gpu, const GpuJobs& jobs) {
  Json processes = Json::array();
  for (const GpuProcess& process : gpu.processes) processes.push_back(ProcessJson(process));
  const TicketText* const holder = HolderOf(jobs.tickets, gpu.uuid);
  const std::string why = WhyBusy(gpu, 0);
  return {{"index", gpu.index},
          {"uuid", gpu.uuid},
          {"name", gpu.name},
          {"pci", gpu.pci},
          {"total_bytes", gpu.total_bytes},
          {"free_bytes", gpu.free_bytes},
          {"used_bytes", gpu.used_bytes},
          {"utilization", OrNull(gpu.sensors.utilization)},
          {"temperature", OrNull(gpu.sensors.temperature)},
          {"power_w", OrNull(gpu.sensors.power_w)},
          {"power_limit_w", OrNull(gpu.limits.power_w)},
          {"ecc", OrNull(gpu.ecc)},
          {"ecc_uncorrected_errors", OrNull(gpu.ecc_errors)},
          {"exclusive", gpu.exclusive},
          {"idle", why.empty() && !jobs.Hold(gpu)},
          {"busy_because", why.empty() ? Json(nullptr) : Json(why)},
          {"held_by", holder == nullptr ? Json(nullptr) : Json(holder->pid)},
          {"processes", processes}};
}

std::vector<std::string> GpusLines(const GpuSnapshot& seen, const GpuJobs& jobs) {
  if (seen.gpus.empty()) return {"No GPUs: " + seen.none};
  std::vector<std::string> lines = TableLines(seen, jobs);
  lines.push_back("");
  const auto width = static_cast<size_t>(ResultWidth());
  for (const std::string& line : UserLines(seen, jobs)) lines.push_back(OneLine(line, width));
  return lines;
}

Json GpusJson(const GpuSnapshot& seen, const GpuJobs& jobs) {
  Json json{{"driver", seen.driver}, {"gpus", Json::array()}, {"jobs", Json::array()}};
  if (seen.gpus.empty()) json["none"] = seen.none;
  for (const Gpu& gpu : seen.gpus) json["gpus"].push_back(GpuJson(gpu, jobs));
  for (const TicketText& job : jobs.tickets) {
    json["jobs"].push_back({{"pid", job.pid},
                            {"owner", UserName(job.user)},
                            {"what", job.what},
                            {"holds", job.state == TicketState::kHolding},
                            {"wants", job.wants},
                            {"cards", job.gpus},
                            {"since", job.changed}});
  }
  return json;
}

TakenGpus Take(const GpusRunArguments& arguments) {
  const std::unique_ptr<GpuProbe> probe = OpenNvml();
  const GpuSnapshot seen = probe->Look();
  GpuPlan plan = PlanGpus({.devices = {.kind = DeviceWish::Kind::kAuto, .count = arguments.count},
                           .origin = fmt::format("muster gpus run -n {}", arguments.count),
                           .what = OneLine(Join(arguments.command, " "), 60)},
                          seen, VisibleHere(seen));
  if (!plan.wish) throw Error(ExitCode::kFailure, "{}", plan.reason);
  plan.wish->fewer = "-n ";
  // Standard output belongs to the command.
  return TakeGpus(*probe, LockFolder::OfHost(), *plan.wish,
                  {.wait_s = arguments.wait_s,
                   .say = [](const std::string& line) { PrintError("muster: " + line + "\n"); }});
}

// Keeps the ticket and the locks open across exec.
void Inherit(const TakenGpus& taken) {
  ::fcntl(taken.ticket->fd(), F_SETFD, 0);
  for (const GpuLock& lock : taken.locks) {
    for (const int fd : lock.fds()) ::fcntl(fd, F_SETFD, 0);
  }
}

}  // namespace

int RunGpus(bool json) {
  const GpuSnapshot seen = OpenNvml()->Look();
  const GpuJobs jobs = ReadJobs(seen);
  if (json) {
    PrintResultAsIs(JsonText(GpusJson(seen, jobs), 2));
  } else {
    PrintResult(GpusLines(seen, jobs));
  }
  return 0;
}

void RunWithGpus(const GpusRunArguments& arguments) {
  TakenGpus taken;
  try {
    taken = Take(arguments);
  } catch (const Error& error) {
    if (!arguments.or_cpu) throw;
    PrintError(fmt::format("muster: --or-cpu: without a GPU, because {}\n", error.what()));
  }
  std::vector<std::string> uuids, texts;
  for (const Gpu& gpu : taken.gpus) {
    uuids.push_back(gpu.uuid);
    texts.push_back(GpuText(gpu));
  }
  if (!uuids.empty()) {
    PrintError(fmt::format("muster: {}: {}\n", Join(texts, ", "), taken.reason));
    Inherit(taken);
  }
  ::setenv("CUDA_VISIBLE_DEVICES", Join(uuids, ",").c_str(), 1);
  ::signal(SIGXFSZ, SIG_DFL);  // undo what main() has set
  std::vector<char*> words;
  for (const std::string& word : arguments.command)
    words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  throw Error(ExitCode::kUsage, "cannot execute {}: {}", arguments.command[0], ErrorText(errno));
}

}  // namespace muster
