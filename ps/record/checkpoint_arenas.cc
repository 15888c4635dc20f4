#include "ps/record/checkpoint_arenas.h"

#include <fmt/core.h>

#include "common/base/error.h"

namespace muster {

std::vector<std::string> CheckpointArenaNames(const Variables& variables) {
  std::vector<std::string> names{"weights"};
  for (size_t i = 0; i < variables.state_arenas(); ++i) {
    names.push_back(fmt::format("optimizer_state_{}", i));
  }
  if (variables.has_average()) names.emplace_back("average");
  return names;
}

std::vector<std::span<float>> CheckpointArenas(Variables& variables, int64_t version) {
  std::vector<std::span<float>> arenas{variables.Weights(version)};
  for (size_t i = 0; i < variables.state_arenas(); ++i) {
    arenas.push_back(variables.State(i, variables.updates()));
  }
  if (variables.has_average()) arenas.push_back(variables.Average(variables.updates()));
  return arenas;
}

void ReadArena(const CheckpointReader& reader, const std::string& arena,
               const VariableLayout& layout, std::span<float> to) {
  for (const Variable& variable : layout.variables()) {
    reader.Read(arena + "." + variable.name, to.subspan(variable.offset, variable.count));
  }
}

void RestoreVariables(const CheckpointReader& reader, Variables& variables) {
  const checkpoint::State& state = reader.state();
  if (state.plan().layout_hash() != variables.layout().hash()) {
    throw Error(ExitCode::kUsage, "{}: the variables of the checkpoint do not match this network",
                reader.folder());
  }
  variables.Restore(state.updates());
  const std::vector<std::string> names = CheckpointArenaNames(variables);
  const std::vector<std::span<float>> arenas = CheckpointArenas(variables, state.step());
  for (size_t i = 0; i < names.size(); ++i) {
    ReadArena(reader, names[i], variables.layout(), arenas[i]);
  }
  variables.RestoreDerived(state.step());
}

}  // namespace muster
