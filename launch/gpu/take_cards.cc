#include "launch/gpu/take_cards.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "common/base/error.h"
#include "launch/gpu/choice.h"
#include "launch/gpu/usage_text.h"
#include "launch/text/units.h"

namespace muster {
namespace {

constexpr double kTurnSeconds = 0.002;  // until an earlier job has chosen
constexpr double kWaitSeconds = 0.5;    // until cards may have come free

constexpr std::chrono::seconds kNewsInterval{60};  // between lines about the wait

using Clock = std::chrono::steady_clock;

struct Attempt {
  std::vector<Gpu> cards;  // empty: not enough
  std::vector<CardLock> locks;
  std::string reason;
  bool others_choose = false;  // jobs before this one are about to leave cards, or to take them
};

class Taker {
 public:
  Taker(GpuProbe& probe, const LockFolder& folder, const CardWish& wish, const TakeOptions& options)
      : probe_(probe), folder_(folder), wish_(wish), options_(options) {}

  TakenCards Run() {
    Ticket ticket(folder_, wish_.count, wish_.pool, wish_.what);
    const auto deadline = Clock::now() + std::chrono::duration<double>(options_.wait_s);
    const auto begin = Clock::now();
    const auto others_until = begin + std::chrono::duration<double>(options_.others_choose_s);
    for (bool waiting = false;;) {
      Attempt attempt = Try(ticket);
      if (!attempt.cards.empty()) return Hold(std::move(ticket), std::move(attempt));
      ticket.Beat();
      if (attempt.others_choose && Clock::now() < others_until) {
        const std::chrono::duration<double> waited = Clock::now() - begin;
        if (waited.count() >= options_.quiet_s) SayNews(ticket, options_.others_choose_s);
        options_.sleep(kTurnSeconds);
        continue;
      }
      if (Clock::now() >= deadline) throw NotEnough(ticket);
      if (!std::exchange(waiting, true)) ticket.Say(TicketState::kWaiting);
      SayNews(ticket, options_.wait_s);
      options_.sleep(kWaitSeconds);
    }
  }

 private:
  static TakenCards Hold(Ticket ticket, Attempt attempt) {
    std::vector<std::string> uuids;
    for (const Gpu& gpu : attempt.cards) uuids.push_back(gpu.uuid);
    ticket.SayHolding(uuids);
    return {.cards = std::move(attempt.cards),
            .locks = std::move(attempt.locks),
            .ticket = std::move(ticket),
            .reason = std::move(attempt.reason)};
  }

  std::vector<SeenTicket> Before(const Ticket& ticket) const {
    std::vector<SeenTicket> before;
    for (SeenTicket& other : ReadTickets(folder_)) {
      const bool earlier = other.name < ticket.name();
      const bool wants = other.text.state != TicketState::kHolding && !other.asleep;
      if (earlier && wants && Shares(other)) before.push_back(std::move(other));
    }
    return before;
  }
  bool Shares(const SeenTicket& other) const {
    return std::ranges::any_of(other.text.cards, [this](const std::string& card) {
      return std::ranges::find(wish_.pool, card) != wish_.pool.end();
    });
  }

  // Without those that earlier jobs may take: also if they cannot use them yet.
  std::vector<std::string> LeftBy(const std::vector<SeenTicket>& before) const {
    std::set<std::string> theirs;
    for (const SeenTicket& other : before) {
      theirs.insert(other.text.cards.begin(), other.text.cards.end());
    }
    std::vector<std::string> left;
    for (const std::string& card : wish_.pool) {
      if (!theirs.contains(card)) left.push_back(card);
    }
    return left;
  }

  Attempt Try(const Ticket& ticket) {
    const std::vector<SeenTicket> before = Before(ticket);
    const std::vector<std::string> left = LeftBy(before);
    bool others_choose = std::ranges::any_of(
        before, [](const SeenTicket& other) { return other.text.state == TicketState::kTaking; });
    if (left.size() < wish_.count) return {.others_choose = others_choose};
    const bool several = wish_.count > 1 && !wish_.named;
    GpuSnapshot seen = probe_.Look(several ? LookAtLinks::kYes : LookAtLinks::kNo);
    std::vector<size_t> idle = IdleOf(seen, left);
    if (!wish_.named && idle.size() > wish_.count) SampleUtilization(seen);
    while (idle.size() >= wish_.count) {
      const std::vector<size_t> chosen = wish_.named ? idle : ChooseCards(seen, idle, wish_.count);
      Attempt attempt{.reason = wish_.named ? "" : ChoiceReason(seen, idle, chosen)};
      const std::optional<size_t> lost = LockAll(seen, chosen, attempt);
      if (!lost) return attempt;
      for (CardLock& lock : attempt.locks) lock.Release();
      std::erase(idle, *lost);
      // Two that came at the same moment may have stopped each other.
      others_choose |= attempt.others_choose;
    }
    return {.others_choose = others_choose};
  }

  // In the order of `cards`.
  std::vector<size_t> IdleOf(const GpuSnapshot& seen, const std::vector<std::string>& cards) const {
    std::vector<size_t> idle;
    for (const std::string& card : cards) {
      const Gpu* const gpu = seen.Find(card);
      if (gpu == nullptr || !WhyBusy(*gpu, wish_.free_share).empty()) continue;
      idle.push_back(static_cast<size_t>(gpu - seen.gpus.data()));
    }
    return idle;
  }

  // NVML's number is of the last moment; two of them say more.
  void SampleUtilization(GpuSnapshot& seen) {
    options_.sleep(options_.sample_s);
    const GpuSnapshot later = probe_.Look();
    for (Gpu& gpu : seen.gpus) {
      const Gpu* const again = later.Find(gpu.uuid);
      if (again == nullptr || !again->utilization) continue;
      gpu.utilization = std::max(*again->utilization, gpu.utilization.value_or(0));
    }
  }

  // One that cannot be had, if there is one; the attempt has the locks so far.
  std::optional<size_t> LockAll(const GpuSnapshot& seen, const std::vector<size_t>& chosen,
                                Attempt& attempt) {
    for (const size_t card : chosen) {
      std::optional<CardLock> lock = CardLock::Try(folder_, seen.gpus[card].uuid);
      if (!lock) {
        attempt.others_choose = HolderOf(ReadTickets(folder_), seen.gpus[card].uuid) == nullptr;
        return card;
      }
      attempt.locks.push_back(std::move(*lock));
    }
    // Since the first look somebody who takes no lock may have begun to compute.
    const GpuSnapshot now = probe_.Look();
    std::vector<Gpu> cards;
    for (const size_t card : chosen) {
      const Gpu* const gpu = now.Find(seen.gpus[card].uuid);
      if (gpu == nullptr || !WhyBusy(*gpu, wish_.free_share).empty()) return card;
      cards.push_back(*gpu);
    }
    attempt.cards = std::move(cards);
    return std::nullopt;
  }

  std::string Wanted() const {
    const auto count = static_cast<int64_t>(wish_.count);
    if (wish_.named) return Plural(count, "card") + " by name";
    return wish_.count == wish_.pool.size()
               ? fmt::format("all {}", Plural(count, "card"))
               : fmt::format("{} of {}", count,
                             Plural(static_cast<int64_t>(wish_.pool.size()), "card"));
  }

  // What has changed, but not each time that somebody's memory or a temperature has.
  void SayNews(const Ticket& ticket, double at_most_s) {
    if (Clock::now() < next_news_) return;
    next_news_ = Clock::now() + kNewsInterval;
    const std::string line = WaitLine(ticket, at_most_s);
    if (line != std::exchange(said_, line)) options_.say(line);
  }

  std::string WaitLine(const Ticket& ticket, double at_most_s) {
    const std::vector<SeenTicket> before = Before(ticket);
    std::string line =
        fmt::format("Waiting for {}, {} at most", Wanted(), FormatDuration(at_most_s));
    if (!before.empty()) {
      line += fmt::format("; {} before this one: {}",
                          Plural(static_cast<int64_t>(before.size()), "job"), JobText(before[0]));
    }
    const std::vector<std::string> usage =
        UsageLines(probe_.Look(), folder_, wish_.pool, wish_.free_share);
    for (const std::string& card : usage) line += "\n  " + card;
    return line;
  }

  // What would start at once, or "".
  std::string WouldStart(const GpuSnapshot& seen) const {
    const std::vector<std::string> idle = IdleCards(seen, folder_, wish_.pool, wish_.free_share);
    if (idle.empty() || idle.size() >= wish_.count) return "";
    if (!wish_.named) {
      return fmt::format("\n  {}{} would start now", wish_.fewer, idle.size() * wish_.fewer_unit);
    }
    std::string indices;
    for (const std::string& uuid : idle) {
      indices += (indices.empty() ? "" : ",") + seen.Find(uuid)->index;
    }
    return fmt::format("\n  --devices {} would start now", indices);
  }

  Error NotEnough(const Ticket& ticket) {
    const bool waited = options_.wait_s > 0;
    std::string text = fmt::format("there are not enough idle cards: expected {}", Wanted());
    if (waited) text += " within " + FormatDuration(options_.wait_s);
    const std::vector<SeenTicket> before = Before(ticket);
    const GpuSnapshot seen = probe_.Look();
    for (const std::string& card : UsageLines(seen, folder_, wish_.pool, wish_.free_share)) {
      text += "\n  " + card;
    }
    for (const SeenTicket& other : before) text += "\n  waits before this one: " + JobText(other);
    if (before.empty()) text += WouldStart(seen);
    text += waited ? "" : "\n  --wait [MINUTES] waits in turn until there are enough";
    return {waited ? ExitCode::kDeadline : ExitCode::kFailure, text};
  }

  GpuProbe& probe_;
  const LockFolder& folder_;
  const CardWish& wish_;
  const TakeOptions& options_;
  Clock::time_point next_news_ = Clock::time_point::min();
  std::string said_;
};

}  // namespace

void SleepFor(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

TakenCards TakeCards(GpuProbe& probe, const LockFolder& folder, const CardWish& wish,
                     const TakeOptions& options) {
  MUSTER_CHECK(0 < wish.count && wish.count <= wish.pool.size());
  return Taker(probe, folder, wish, options).Run();
}

}  // namespace muster
