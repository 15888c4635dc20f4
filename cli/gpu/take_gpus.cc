#include "cli/gpu/take_gpus.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "cli/gpu/choice.h"
#include "cli/gpu/usage.h"
#include "cli/text/units.h"
#include "common/base/error.h"

namespace muster {
namespace {

constexpr double kTurnSeconds = 0.002;  // the poll interval while an earlier job chooses
constexpr double kWaitSeconds = 0.5;    // the poll interval while GPUs are busy

constexpr std::chrono::seconds kNewsInterval{60};  // between messages about the wait

using QueueClock = std::chrono::steady_clock;

struct Attempt {
  std::vector<Gpu> gpus;  // empty: not enough
  std::vector<GpuLock> locks;
  std::string reason;
  bool others_choose = false;  // earlier jobs are about to take GPUs or to give up
};

class Taker {
 public:
  Taker(GpuProbe& probe, const LockFolder& folder, const GpuWish& wish, const TakeOptions& options)
      : probe_(probe), folder_(folder), wish_(wish), options_(options) {}

  TakenGpus Run() {
    auto ticket = std::make_unique<Ticket>(folder_, wish_.count, wish_.pool, wish_.what);
    const auto deadline = QueueClock::now() + std::chrono::duration<double>(options_.wait_s);
    const auto begin = QueueClock::now();
    const auto others_until = begin + std::chrono::duration<double>(options_.others_choose_s);
    for (bool waiting = false;;) {
      Attempt attempt = Try(*ticket);
      if (!attempt.gpus.empty()) return Hold(std::move(ticket), std::move(attempt));
      ticket->Beat();
      if (attempt.others_choose && QueueClock::now() < others_until) {
        const std::chrono::duration<double> waited = QueueClock::now() - begin;
        if (waited.count() >= options_.quiet_s) SayNews(*ticket, options_.others_choose_s);
        options_.sleep(kTurnSeconds);
        continue;
      }
      if (QueueClock::now() >= deadline) throw NotEnough(*ticket);
      if (!std::exchange(waiting, true)) ticket->SayWaiting();
      SayNews(*ticket, options_.wait_s);
      options_.sleep(kWaitSeconds);
    }
  }

 private:
  static TakenGpus Hold(std::unique_ptr<Ticket> ticket, Attempt attempt) {
    std::vector<std::string> uuids;
    for (const Gpu& gpu : attempt.gpus) uuids.push_back(gpu.uuid);
    ticket->SayHolding(uuids);
    return {.gpus = std::move(attempt.gpus),
            .locks = std::move(attempt.locks),
            .ticket = std::move(ticket),
            .reason = std::move(attempt.reason)};
  }

  std::vector<TicketText> Before(const Ticket& ticket) const {
    std::vector<TicketText> before;
    for (TicketText& other : ReadTickets(folder_)) {
      const bool earlier = other.name < ticket.name();
      const bool wants = other.state != TicketState::kHolding && !other.asleep;
      if (earlier && wants && Shares(other)) before.push_back(std::move(other));
    }
    return before;
  }
  bool Shares(const TicketText& other) const {
    return std::ranges::any_of(other.gpus, [this](const std::string& uuid) {
      return std::ranges::find(wish_.pool, uuid) != wish_.pool.end();
    });
  }

  // Returns the pool without the GPUs that earlier jobs may take, even if those are busy.
  std::vector<std::string> LeftBy(const std::vector<TicketText>& before) const {
    std::set<std::string> theirs;
    for (const TicketText& other : before) {
      theirs.insert(other.gpus.begin(), other.gpus.end());
    }
    std::vector<std::string> left;
    for (const std::string& uuid : wish_.pool) {
      if (!theirs.contains(uuid)) left.push_back(uuid);
    }
    return left;
  }

  Attempt Try(const Ticket& ticket) {
    const std::vector<TicketText> before = Before(ticket);
    const std::vector<std::string> left = LeftBy(before);
    bool others_choose = std::ranges::any_of(
        before, [](const TicketText& other) { return other.state == TicketState::kTaking; });
    if (left.size() < wish_.count) return {.others_choose = others_choose};
    const bool several = wish_.count > 1 && !wish_.named;
    const GpuSnapshot seen = probe_.Look(several ? LookAtLinks::kYes : LookAtLinks::kNo);
    std::vector<size_t> idle = IdleOf(seen, left);
    while (idle.size() >= wish_.count) {
      const std::vector<size_t> chosen = wish_.named ? idle : ChooseGpus(seen, idle, wish_.count);
      Attempt attempt{.reason = wish_.named ? "" : ChoiceReason(seen, idle, chosen)};
      const std::optional<size_t> lost = LockAll(seen, chosen, attempt);
      if (!lost) return attempt;
      attempt.locks.clear();
      std::erase(idle, *lost);
      // Two jobs that tried at the same time may have blocked each other.
      others_choose |= attempt.others_choose;
    }
    return {.others_choose = others_choose};
  }

  // Returns the idle GPUs, in the order of `uuids`.
  std::vector<size_t> IdleOf(const GpuSnapshot& seen, const std::vector<std::string>& uuids) const {
    std::vector<size_t> idle;
    for (const std::string& uuid : uuids) {
      const Gpu* const gpu = seen.Find(uuid);
      if (gpu == nullptr || !WhyBusy(*gpu, wish_.free_share).empty()) continue;
      idle.push_back(static_cast<size_t>(gpu - seen.gpus.data()));
    }
    return idle;
  }

  // Locks the chosen GPUs. Returns one that is unavailable, if any; the attempt then has the locks
  // so far.
  std::optional<size_t> LockAll(const GpuSnapshot& seen, const std::vector<size_t>& chosen,
                                Attempt& attempt) {
    for (const size_t gpu : chosen) {
      const std::string& uuid = seen.gpus[gpu].uuid;
      GpuLock lock = folder_.LockGpu(uuid);
      if (!lock.valid()) {
        attempt.others_choose = HolderOf(ReadTickets(folder_), uuid) == nullptr;
        return gpu;
      }
      attempt.locks.push_back(std::move(lock));
    }
    // If someone has removed a lock file, the ticket still tells, also in another container, where
    // the holder's socket does not show.
    const std::vector<TicketText> tickets = ReadTickets(folder_);
    for (const size_t gpu : chosen) {
      if (HolderOf(tickets, seen.gpus[gpu].uuid) != nullptr) return gpu;
    }
    // A process that takes no locks may have started to compute since the first look.
    const GpuSnapshot now = probe_.Look();
    std::vector<Gpu> gpus;
    for (const size_t gpu : chosen) {
      const Gpu* const again = now.Find(seen.gpus[gpu].uuid);
      if (again == nullptr || !WhyBusy(*again, wish_.free_share).empty()) return gpu;
      gpus.push_back(*again);
    }
    attempt.gpus = std::move(gpus);
    return std::nullopt;
  }

  std::string Wanted() const {
    const auto count = static_cast<int64_t>(wish_.count);
    if (wish_.named) return Plural(count, "named GPU");
    return wish_.count == wish_.pool.size()
               ? fmt::format("all {}", Plural(count, "GPU"))
               : fmt::format("{} of {}", count,
                             Plural(static_cast<int64_t>(wish_.pool.size()), "GPU"));
  }

  // Reports changes, but at most once per kNewsInterval, because memory use and temperatures change
  // constantly.
  void SayNews(const Ticket& ticket, double at_most_s) {
    if (QueueClock::now() < next_news_) return;
    next_news_ = QueueClock::now() + kNewsInterval;
    const std::string line = WaitLine(ticket, at_most_s);
    if (line != std::exchange(said_, line)) options_.say(line);
  }

  std::string WaitLine(const Ticket& ticket, double at_most_s) {
    const std::vector<TicketText> before = Before(ticket);
    std::string line =
        fmt::format("Waiting for {}, at most {}", Wanted(), FormatDuration(at_most_s));
    if (!before.empty()) {
      line += fmt::format("; {} ahead in the queue: {}",
                          Plural(static_cast<int64_t>(before.size()), "job"), JobText(before[0]));
    }
    const std::vector<std::string> usage =
        UsageLines(probe_.Look(), folder_, wish_.pool, wish_.free_share);
    for (const std::string& gpu : usage) line += "\n  " + gpu;
    return line;
  }

  // Suggests options with which the job would start at once. Returns "" if there are none.
  std::string WouldStart(const GpuSnapshot& seen) const {
    const std::vector<std::string> idle = IdleGpus(seen, folder_, wish_.pool, wish_.free_share);
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
    std::string text = fmt::format("not enough idle GPUs: expected {}", Wanted());
    if (waited) text += " within " + FormatDuration(options_.wait_s);
    const std::vector<TicketText> before = Before(ticket);
    const GpuSnapshot seen = probe_.Look();
    for (const std::string& gpu : UsageLines(seen, folder_, wish_.pool, wish_.free_share)) {
      text += "\n  " + gpu;
    }
    for (const TicketText& other : before) text += "\n  ahead in the queue: " + JobText(other);
    if (before.empty()) text += WouldStart(seen);
    text += waited ? "" : "\n  --wait [MINUTES] queues until there are enough";
    return {waited ? ExitCode::kDeadline : ExitCode::kFailure, text};
  }

  GpuProbe& probe_;
  const LockFolder& folder_;
  const GpuWish& wish_;
  const TakeOptions& options_;
  QueueClock::time_point next_news_ = QueueClock::time_point::min();
  std::string said_;
};

}  // namespace

void SleepFor(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

TakenGpus TakeGpus(GpuProbe& probe, const LockFolder& folder, const GpuWish& wish,
                   const TakeOptions& options) {
  MUSTER_CHECK(0 < wish.count && wish.count <= wish.pool.size());
  return Taker(probe, folder, wish, options).Run();
}

}  // namespace muster
