#include "cli/job/server_loss.h"

#include <fmt/core.h>

#include <algorithm>

#include "cli/text/units.h"
#include "common/base/join.h"

namespace muster {
namespace {

constexpr int kMostTold = 3;  // the rest is in metrics.jsonl

std::string Where(const events::Restarted& restart) {
  return (restart.has_lost_at_step() ? "at step " + FormatCount(restart.lost_at_step())
                                     : "before its first step") +
         " (" + restart.cause() + ")";
}

std::string From(const events::Restarted& restart) {
  return "from step " + FormatCount(restart.from_step());
}

}  // namespace

std::optional<int> SignalOfServer(const std::vector<EndedProcess>& ended) {
  for (const EndedProcess& process : ended) {
    if (process.rank >= 0) continue;
    if (process.end.by_signal && !process.end.asked) return process.end.value;
  }
  return std::nullopt;
}

std::string LossArgument(const ServerLoss& loss) {
  return fmt::format("{},{:.3f},{}", loss.step.value_or(-1), loss.at, loss.cause);
}

std::string RestartsText(const events::Summary& summary) {
  const int count = summary.restarts_size();
  if (count == 0) return "";
  if (count == 1) {
    const events::Restarted& only = summary.restarts(0);
    return fmt::format("the server was lost {} and started again {}, 1 time", Where(only),
                       From(only));
  }
  std::vector<std::string> told;
  for (int i = std::max(0, count - kMostTold); i < count; ++i) {
    told.push_back(Where(summary.restarts(i)) + " " + From(summary.restarts(i)));
  }
  return fmt::format("the server was lost and started again {} times: {}{}",
                     FormatCount(int64_t{count}), count > kMostTold ? "… " : "", Join(told, ", "));
}

}  // namespace muster
