#include "cli/job/lost_before.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "cli/view/run_record.h"
#include "common/base/error.h"

namespace muster {
namespace {

bool IsEnd(const std::string& state) {
  return state == "completed" || state == "failed" || state == "interrupted";
}

}  // namespace

std::optional<ServerLoss> LostBefore(const std::string& run_dir) {
  try {
    const auto status = ReadStatus(run_dir);
    if (!status || ServerIsAlive(*status)) return std::nullopt;
    const auto state = status->find("state"), step = status->find("step");
    if (state == status->end() || !state->is_string() || IsEnd(state->get<std::string>())) {
      return std::nullopt;
    }
    const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
    // It wrote that last; clocks are set.
    ServerLoss loss{.cause = "ended without a word",
                    .step = {},
                    .at = now.count() - std::max(0.0, StatusAge(*status))};
    if (step != status->end() && step->is_number_unsigned()) loss.step = step->get<int64_t>();
    return loss;
  } catch (const Error&) {  // somebody else's file
    return std::nullopt;
  }
}

}  // namespace muster
