#include "cli/gpu/usage.h"

#include <fmt/core.h>

#include <algorithm>

#include "cli/gpu/process_info.h"
#include "cli/text/units.h"

namespace muster {
namespace {

// The driver and small tools use less than this share of an idle GPU.
constexpr double kUnseenShare = 0.1;
// An idle GPU computes far less of the time.
constexpr unsigned kUnseenPercent = 50;
// A job that wants a whole GPU gets at most this share, because the driver reserves some memory.
constexpr double kMostShare = 0.95;

// Returns "" for the MPS server, which computes nothing itself; its clients are listed, too.
std::string ProcessWords(pid_t pid) {
  const ProcessText text = DescribeProcess(pid);
  if (text.command.starts_with("nvidia-cuda-mps-server")) return "";
  if (!text.seen) {
    return fmt::format("process {} computes on it (in another container or of another user)", pid);
  }
  return fmt::format("{} of {}, pid {}{}, computes on it", text.command, text.user, pid,
                     text.since ? ", since " + ClockText(*text.since) : "");
}

}  // namespace

// Graphics and the MPS server explain no use.
bool HasUnseenWork(const Gpu& gpu) {
  const bool explained = std::ranges::any_of(gpu.processes, [](const GpuProcess& process) {
    return process.computes && !ProcessWords(process.pid).empty();
  });
  return !explained && gpu.sensors.utilization.value_or(0) >= kUnseenPercent;
}

std::string WhyBusy(const Gpu& gpu, double free_share) {
  if (!gpu.trouble.empty()) return gpu.trouble;
  uint64_t seen_bytes = 0;
  for (const GpuProcess& process : gpu.processes) {
    if (std::string words = process.computes ? ProcessWords(process.pid) : ""; !words.empty()) {
      return words;
    }
    seen_bytes += process.bytes.value_or(0);
  }
  const auto total = static_cast<double>(gpu.total_bytes);
  const double unseen = static_cast<double>(gpu.used_bytes) -
                        static_cast<double>(std::min(seen_bytes, gpu.used_bytes));
  if (unseen > kUnseenShare * total) {
    return fmt::format("{} of its memory is used by processes that are not visible from here",
                       FormatBytes(unseen));
  }
  if (HasUnseenWork(gpu)) {
    return fmt::format("processes that are not visible from here compute on it {} % of the time",
                       *gpu.sensors.utilization);
  }
  const double needed = std::min(free_share, kMostShare) * total;
  if (static_cast<double>(gpu.free_bytes) < needed) {
    return fmt::format("{} of its memory is free, {} is needed",
                       FormatBytes(static_cast<double>(gpu.free_bytes)), FormatBytes(needed));
  }
  if (gpu.sensors.temperature && gpu.limits.slowdown_temperature &&
      *gpu.sensors.temperature >= *gpu.limits.slowdown_temperature) {
    return fmt::format("it is too hot: {} degrees; it slows down at {}", *gpu.sensors.temperature,
                       *gpu.limits.slowdown_temperature);
  }
  return "";
}

std::string JobText(const TicketText& ticket) {
  return fmt::format("{}'s {} (pid {}, {})", UserName(ticket.user), ticket.what, ticket.pid,
                     Plural(static_cast<int64_t>(ticket.wants), "GPU"));
}

const TicketText* HolderOf(const std::vector<TicketText>& tickets, const std::string& uuid) {
  for (const TicketText& ticket : tickets) {
    const bool holds = ticket.state == TicketState::kHolding;
    if (holds && std::ranges::find(ticket.gpus, uuid) != ticket.gpus.end()) {
      return &ticket;
    }
  }
  return nullptr;
}

std::vector<std::string> IdleGpus(const GpuSnapshot& seen, const LockFolder& folder,
                                  const std::vector<std::string>& uuids, double free_share) {
  const std::vector<TicketText> tickets = ReadTickets(folder);
  std::vector<std::string> idle;
  for (const std::string& uuid : uuids) {
    const Gpu* const gpu = seen.Find(uuid);
    if (gpu == nullptr || !WhyBusy(*gpu, free_share).empty()) continue;
    const bool held = HolderOf(tickets, uuid) != nullptr;
    if (!held && folder.LockHolder(uuid).empty()) idle.push_back(uuid);
  }
  return idle;
}

std::vector<std::string> UsageLines(const GpuSnapshot& seen, const LockFolder& folder,
                                    const std::vector<std::string>& uuids, double free_share) {
  const std::vector<TicketText> tickets = ReadTickets(folder);
  std::vector<std::string> lines;
  for (const std::string& uuid : uuids) {
    const Gpu* const gpu = seen.Find(uuid);
    if (gpu == nullptr) {
      lines.push_back(fmt::format("GPU {}: gone", uuid));
      continue;
    }
    std::string text = WhyBusy(*gpu, free_share);
    if (const TicketText* const holder = HolderOf(tickets, uuid)) {
      text = fmt::format("{}, since {}", JobText(*holder), ClockText(holder->changed));
    } else if (text.empty()) {
      const std::string other = folder.LockHolder(uuid);
      if (!other.empty()) text = "idle, but its lock is held by " + other;
    }
    lines.push_back(fmt::format("GPU {}: {}", gpu->index, text.empty() ? "idle" : text));
  }
  return lines;
}

}  // namespace muster
