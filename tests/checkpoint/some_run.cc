#include "tests/checkpoint/some_run.h"

#include "ps/record/checkpoint_arenas.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;

// Sizes above and below a block, and not multiples of it.
VariableLayout SomeLayout() {
  return {{{.name = "a/weights", .layer = 0, .shape = {3, 5}, .offset = 0, .count = 15},
           {.name = "b/weights", .layer = 1, .shape = {7, 400}, .offset = 16, .count = 2800},
           {.name = "c/bias", .layer = 2, .shape = {1}, .offset = 2816, .count = 1}},
          {"a line for the hash"}};
}

const VariablesOptions kOptions{.state_arenas = 2, .average = true};

}  // namespace

SomeRun::SomeRun()
    : layout_(SomeLayout()),
      variables_(layout_, kOptions),
      image_(layout_, CheckpointArenaNames(variables_).size()) {}

std::string SomeRun::Folder(const CheckpointName& name) const {
  return CheckpointsFolder(dir_) + "/" + name.Text();
}

float SomeRun::ValueOf(int64_t step, size_t arena, size_t i) const {
  return static_cast<float>(step * 100000 + static_cast<int64_t>(arena * 10000 + i));
}

CheckpointToWrite SomeRun::At(const CheckpointName& name) {
  const auto fill = [&](std::span<float> floats, size_t arena) {
    for (size_t i = 0; i < floats.size(); ++i) floats[i] = ValueOf(name.step, arena, i);
  };
  variables_.Restore(name.step);
  fill(variables_.Weights(name.step), 0);
  fill(variables_.State(0, name.step), 1);
  fill(variables_.State(1, name.step), 2);
  fill(variables_.Average(name.step), 3);
  const std::vector<std::span<float>> arenas = CheckpointArenas(variables_, name.step);
  for (const auto& job : image_.CopyJobs({arenas.begin(), arenas.end()})) job();
  CheckpointToWrite what{.run_dir = dir_,
                         .name = name,
                         .tensors = CheckpointTensors(layout_, CheckpointArenaNames(variables_))};
  what.state.set_run_id(kSomeRun);
  what.state.set_generation(name.generation);
  what.state.set_step(name.step);
  what.state.set_evaluated(name.evaluated);
  what.state.set_updates(name.step);
  what.state.mutable_plan()->set_layout_hash(layout_.hash());
  return what;
}

void SomeRun::Write(const CheckpointName& name, std::vector<CheckpointName> expired) {
  CheckpointToWrite what = At(name);
  what.expired = std::move(expired);
  WriteCheckpoint(what, image_);
}

bool SomeRun::Holds(const CheckpointReader& reader) const {
  Variables read(layout_, kOptions);
  RestoreVariables(reader, read);
  const int64_t step = reader.state().step();
  const std::span<const float> arenas[] = {read.Weights(step), read.State(0, step),
                                           read.State(1, step), read.Average(step)};
  for (size_t arena = 0; arena < std::size(arenas); ++arena) {
    for (const Variable& variable : layout_.variables()) {
      for (size_t i = variable.offset; i < variable.offset + variable.count; ++i) {
        if (arenas[arena][i] != ValueOf(step, arena, i)) return false;
      }
    }
  }
  return read.updates() == step;
}

std::optional<CheckpointName> SomeRun::Newest() const {
  const ChosenCheckpoint chosen = ChooseCheckpoint(dir_);
  if (!chosen.reader || !Holds(*chosen.reader)) return std::nullopt;
  return chosen.name;
}

}  // namespace muster::testing
