#include "ps/record/resume.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "common/base/log.h"
#include "common/checkpoint/resumable_config.h"
#include "common/checkpoint/run_mark.h"

namespace muster {
namespace {

std::vector<KeptCheckpoint> KeptBefore(const std::string& run_dir, const ChosenCheckpoint& chosen) {
  std::vector<KeptCheckpoint> kept;
  for (const CheckpointName& name : ListCheckpoints(run_dir)) {
    if (name <= chosen.name) kept.insert(kept.begin(), {name, std::nullopt});
  }
  for (const checkpoint::Evaluated& one : chosen.reader->state().kept()) {
    if (!std::isfinite(one.accuracy())) continue;  // NaN cannot be compared
    for (KeptCheckpoint& other : kept) {
      if (other.name.generation == one.generation() && other.name.step == one.step()) {
        other.accuracy = one.accuracy();
      }
    }
  }
  return kept;
}

}  // namespace

ResumePoint FindResumePoint(const config::Config& config) {
  const std::string& run_dir = config.run().dir();
  RequireOwnCheckpoints(run_dir);
  RequireOwnFolder(run_dir);
  ResumePoint point{.checkpoint = ChooseCheckpoint(run_dir)};
  if (!point.checkpoint.reader) NoCheckpoint(run_dir, point.checkpoint.damaged);
  for (const CheckpointName& name : ListCheckpoints(run_dir)) {
    point.next_generation = std::max(point.next_generation, name.generation + 1);
  }
  point.kept = KeptBefore(run_dir, point.checkpoint);
  point.notes = CheckResumable(point.state().config(), config);
  return point;
}

ResumePoint FindReplay(const std::vector<std::string>& checkpoints, const config::Config& config) {
  ResumePoint point;
  point.checkpoint.reader = std::make_unique<CheckpointReader>(checkpoints.front());
  point.compared_with.reserve(checkpoints.size() - 1);
  for (size_t i = 1; i < checkpoints.size(); ++i) {
    point.compared_with.push_back(std::make_shared<CheckpointReader>(checkpoints[i]));
  }
  point.notes = CheckResumable(point.state().config(), config);
  return point;
}

std::string ArithmeticChange(const checkpoint::Arithmetic& before,
                             const checkpoint::Arithmetic& now) {
  if (before.worker_size() == 0 || now.worker_size() == 0) return "";
  if (std::ranges::equal(before.worker(), now.worker())) return "";
  return fmt::format("the workers computed with \"{}\" before and with \"{}\" now",
                     before.worker(0), now.worker(0));
}

}  // namespace muster
