#include "launch/gpu/usage_text.h"

#include <fmt/core.h>

#include <algorithm>

#include "launch/gpu/card_lock.h"
#include "launch/gpu/choice.h"
#include "launch/gpu/process_info.h"
#include "launch/text/units.h"

namespace muster {

std::string JobText(const SeenTicket& ticket) {
  return fmt::format("{}'s {} (pid {}, {})", UserName(ticket.user), ticket.text.what,
                     ticket.text.pid, Plural(static_cast<int64_t>(ticket.text.wants), "card"));
}

const SeenTicket* HolderOf(const std::vector<SeenTicket>& tickets, const std::string& uuid) {
  for (const SeenTicket& ticket : tickets) {
    const bool holds = ticket.text.state == TicketState::kHolding;
    if (holds && std::ranges::find(ticket.text.cards, uuid) != ticket.text.cards.end()) {
      return &ticket;
    }
  }
  return nullptr;
}

std::vector<std::string> IdleCards(const GpuSnapshot& seen, const LockFolder& folder,
                                   const std::vector<std::string>& uuids, double free_share) {
  const std::vector<SeenTicket> tickets = ReadTickets(folder);
  std::vector<std::string> idle;
  for (const std::string& uuid : uuids) {
    const Gpu* const gpu = seen.Find(uuid);
    if (gpu == nullptr || !WhyBusy(*gpu, free_share).empty()) continue;
    const bool held = HolderOf(tickets, uuid) != nullptr;
    if (!held && CardLock::HolderText(folder, uuid).empty()) idle.push_back(uuid);
  }
  return idle;
}

std::vector<std::string> UsageLines(const GpuSnapshot& seen, const LockFolder& folder,
                                    const std::vector<std::string>& uuids, double free_share) {
  const std::vector<SeenTicket> tickets = ReadTickets(folder);
  std::vector<std::string> lines;
  for (const std::string& uuid : uuids) {
    const Gpu* const gpu = seen.Find(uuid);
    if (gpu == nullptr) {
      lines.push_back(fmt::format("card {}: gone", uuid));
      continue;
    }
    std::string text = WhyBusy(*gpu, free_share);
    if (const SeenTicket* const holder = HolderOf(tickets, uuid)) {
      text = fmt::format("{}, since {}", JobText(*holder), ClockText(holder->changed));
    } else if (text.empty()) {
      const std::string other = CardLock::HolderText(folder, uuid);
      if (!other.empty()) text = "idle, but its lock is held by " + other;
    }
    lines.push_back(fmt::format("card {}: {}", gpu->index, text.empty() ? "idle" : text));
  }
  return lines;
}

}  // namespace muster
