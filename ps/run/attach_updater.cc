#include "ps/run/attach_updater.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace muster {

void AttachUpdater(ProgramUpdater& updater, Run& run, std::function<void(const Error&)> failed) {
  Engine& engine = run.engine();
  const std::span<const float> weights = engine.variables.Weights(run.parts().state.step);
  std::ranges::copy(weights, updater.weights().begin());
  engine.aggregator.UpdateBy({.gradient = updater.gradient(),
                              .weights = updater.weights(),
                              .update = [&](int64_t step, std::function<void(double)> done) {
                                updater.Update(step, std::move(done));
                              }});
  run.keeper().checkpoints.SaveProgram(
      [&](int64_t step, std::function<void(Checkpoints::ProgramState)> done) {
        updater.Save(step, std::move(done));
      });
  updater.Attach(
      engine.pool, run.parts().values.told(),
      [&run](const wire::Tell& tell) { run.OnUpdaterTell(tell); }, std::move(failed));
}

std::string EndUpdater(ProgramUpdater& updater, int64_t steps,
                       const std::function<void()>& meanwhile) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kMost{60};
  const Clock::time_point end = Clock::now() + kMost;
  updater.End(steps);
  std::string trouble;
  while (!updater.HasEnded(trouble)) {
    if (Clock::now() > end) {
      return fmt::format(
          "the process of the program that updates the weights (MUSTER_RANK=-1) has not ended "
          "within "
          "{} s after the run, and is killed",
          kMost.count());
    }
    meanwhile();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return trouble;
}

}  // namespace muster
