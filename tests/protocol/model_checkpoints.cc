#include "tests/protocol/model_checkpoints.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>

#include "common/checkpoint/resumable_config.h"
#include "ps/record/write_checkpoint.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;

// In memory, so that fsync is free.
std::string NewFolder() {
  static std::atomic<int> number = 0;
  const bool in_memory = ::access("/dev/shm", W_OK) == 0;
  const fs::path around = in_memory ? fs::path("/dev/shm") : fs::temp_directory_path();
  return around / fmt::format("muster-model-{}-{}", ::getpid(), number++);
}

ServerProbe::BoundaryName NameOf(const checkpoint::State& state) {
  return {state.step(), state.progress().last_evaluation().step() == state.step(),
          state.evaluated()};
}

}  // namespace

ModelCheckpoints::ModelCheckpoints(const ModelJob& job) : job_(job), folder_(NewFolder()) {}

ModelCheckpoints::~ModelCheckpoints() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void ModelCheckpoints::Keep(ServerProbe& server) {
  const auto newest = server.AtBoundary();
  if (!newest) return;
  const auto is_here = [&](const ServerProbe::Boundary& one) {
    return NameOf(one.state) == *newest;
  };
  if (std::ranges::any_of(kept_, is_here)) return;
  kept_.push_back(server.Keep());
  Check(kept_.back().state);
}

// Checks the data for metrics, and everything that later decisions depend on.
void ModelCheckpoints::Check(const checkpoint::State& state) {
  const int64_t step = state.step();
  int64_t skipped = 0;
  for (int64_t one = 1; one <= step; ++one) skipped += job_.SkippedInARow(one) > 0 ? 1 : 0;
  const checkpoint::Sums& sums = state.progress().total();
  const auto compare = [&](const char* what, int64_t is, int64_t must) {
    if (is == must || !wrong_.empty()) return;
    wrong_ = fmt::format("the checkpoint of step {} has {} {}: expected {}", step, is, what, must);
  };
  compare("updates", state.updates(), job_.Updates(step));
  compare("skipped steps in a row", state.skipped_in_a_row(), job_.SkippedInARow(step));
  compare("steps", sums.steps(), step);
  compare("skipped steps", sums.skipped_steps(), skipped);
  compare("samples", sums.samples(), step * job_.plan().global_batch);
  if (state.evaluated()) {
    compare("as the last evaluated step", state.progress().last_evaluation().step(), step);
    if (job_.bounds().splits && step == job_.plan().total_steps) {
      compare("as the tested step", state.progress().test().step(), step);
    }
  }
}

std::optional<ResumePoint> ModelCheckpoints::GoOn(size_t lost) {
  kept_.resize(kept_.size() - std::min(lost, kept_.size()));
  if (kept_.empty()) return std::nullopt;
  const ServerProbe::Boundary& newest = kept_.back();
  config::Config config = job_.config();
  config.mutable_run()->set_dir(folder_);
  checkpoint::State state = newest.state;
  state.set_run_id(std::string(32, 'a'));
  state.set_config(FrozenConfigText(config));
  state.set_generation(1);
  const CheckpointName name{1, state.step(), state.evaluated()};
  fs::remove_all(folder_);
  fs::create_directory(folder_);
  WriteCheckpoint({.run_dir = folder_,
                   .name = name,
                   .state = std::move(state),
                   .tensors = newest.tensors,
                   .expired = {}},
                  *newest.image);
  return FindResumePoint(config);
}

std::string ModelCheckpoints::Text() const {
  std::string text = "checkpoints";
  for (size_t i = kept_.size() - std::min(kept_.size(), kMostLost + 1); i < kept_.size(); ++i) {
    text += fmt::format(" {}{}", kept_[i].state.step(), kept_[i].state.evaluated() ? "e" : "");
  }
  return text + fmt::format(" of {}\n", std::min(kept_.size(), kMostLost + 1));
}

}  // namespace muster::testing
