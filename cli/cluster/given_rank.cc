#include "cli/cluster/given_rank.h"

#include <fmt/core.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <sstream>
#include <vector>

#include "common/base/error.h"
#include "common/base/text.h"

namespace muster {
namespace {

constexpr uint32_t kMostProcesses = 1'000'000;

struct Engine {
  const char* name;
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  // The variable that only this launcher sets. Scripts set RANK themselves, Slurm's PMI-2 plugin
  // sets PMI_RANK, and a batch script has the SLURM_PROCID of its own only task.
  const char* sign;
  // Launchers of a lower level run inside those of a higher one.
  int level;
};

constexpr Engine kEngines[] = {
    {"torchrun", "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
     "TORCHELASTIC_RUN_ID", 0},
    {"Open MPI", "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_RANK", 1},
    {"MPICH", "mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
     "MPI_LOCALRANKID", 1},
    {"Slurm", "srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
     "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_ID", 2},
    {"Kubernetes", "an indexed Job", "JOB_COMPLETION_INDEX", "", "", "", "JOB_COMPLETION_INDEX",
     3}};
constexpr const Engine& kSlurm = kEngines[3];

struct Found {
  const Engine* engine;
  GivenRank given;
};

bool IsSet(const Environment& environment, const char* variable) {
  const auto found = environment.find(variable);
  return found != environment.end() && !found->second.empty();
}

// The number of tasks on a node, in Slurm's "2(x3),1": nodes 0, 1 and 2 have two. 1 if it is not
// there.
uint32_t TasksOfNode(const std::string& text, uint32_t node) {
  uint32_t end = 0;
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    unsigned tasks = 1, nodes = 1;
    if (std::sscanf(item.c_str(), "%u(x%u)", &tasks, &nodes) < 1) return 1;
    end += nodes;
    if (node < end) return tasks;
  }
  return 1;
}

uint32_t LocalSize(const Environment& environment, const Engine& engine) {
  if (&engine == &kSlurm) {
    const auto tasks = environment.find(engine.local_size);
    const auto node = NumberIn(environment, "SLURM_NODEID", kMostProcesses);
    return tasks == environment.end() || !node ? 1 : TasksOfNode(tasks->second, *node);
  }
  if (*engine.local_size == '\0') return 1;
  return NumberIn(environment, engine.local_size, kMostProcesses).value_or(1);
}

GivenRank Read(const Environment& environment, const Engine& engine) {
  GivenRank given{.engine = engine.name,
                  .launcher = engine.launcher,
                  .is_signed = IsSet(environment, engine.sign),
                  .variable = engine.rank,
                  .size_variable = engine.size};
  given.rank = *NumberIn(environment, engine.rank, kMostProcesses - 1);
  if (*engine.size == '\0') return given;
  given.size = NumberIn(environment, engine.size, kMostProcesses);
  if (!given.size) {
    throw Error(ExitCode::kUsage, "{}={} is set, but {} is not: set both, or give --rank R",
                engine.rank, given.rank, engine.size);
  }
  if (given.rank >= *given.size) {
    throw Error(ExitCode::kUsage, "{}={}: expected a rank below {}={}", engine.rank, given.rank,
                engine.size, *given.size);
  }
  given.local_rank = NumberIn(environment, engine.local_rank, kMostProcesses - 1).value_or(0);
  given.local_size = LocalSize(environment, engine);
  return given;
}

bool Agree(const GivenRank& a, const GivenRank& b) {
  return a.rank == b.rank && (!a.size || !b.size || a.size == b.size);
}

[[noreturn]] void Contradict(const GivenRank& a, const GivenRank& b) {
  const bool ranks = a.rank != b.rank;
  throw Error(
      ExitCode::kUsage,
      "{}={} and {}={} contradict each other: unset the one that is wrong, or give --rank R",
      ranks ? a.variable : a.size_variable, ranks ? a.rank : *a.size,
      ranks ? b.variable : b.size_variable, ranks ? b.rank : *b.size);
}

}  // namespace

Environment ThisEnvironment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos)
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

std::optional<uint32_t> NumberIn(const Environment& environment, const std::string& variable,
                                 uint32_t most) {
  const auto found = environment.find(variable);
  if (found == environment.end() || found->second.empty()) return std::nullopt;
  const std::string& text = found->second;
  uint32_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end && value <= most) return value;
  throw Error(ExitCode::kUsage, "{}={}: expected a whole number from 0 to {}", variable,
              Shown(text), most);
}

std::optional<GivenRank> FindGivenRank(const Environment& environment) {
  std::vector<Found> found;
  const Found* best = nullptr;
  for (const Engine& engine : kEngines) {
    if (!IsSet(environment, engine.rank)) continue;
    if (&engine == &kSlurm && !IsSet(environment, engine.sign)) continue;
    found.push_back({&engine, Read(environment, engine)});
  }
  for (const Found& one : found) {
    const bool better = best == nullptr || (one.given.is_signed && !best->given.is_signed);
    if (better) best = &one;
  }
  if (best == nullptr) return std::nullopt;
  for (const Found& one : found) {
    // The processes of an outer launcher are others: each may have started an mpirun.
    if (one.given.is_signed && one.engine->level > best->engine->level) continue;
    bool agrees = Agree(one.given, best->given);
    for (const Found& other : found) {
      // Slurm's own PMI_RANK agrees with Slurm, even if the ranks are those of a torchrun in it.
      agrees |= !one.given.is_signed && other.given.is_signed && Agree(one.given, other.given);
    }
    if (!agrees) Contradict(best->given, one.given);
  }
  return best->given;
}

std::optional<GivenRank> FindGivenRankIfClear(const Environment& environment) {
  try {
    return FindGivenRank(environment);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string Describe(const GivenRank& given) {
  std::string text = fmt::format("{}, {}={}", given.engine, given.variable, given.rank);
  if (given.size) text += fmt::format(", {}={}", given.size_variable, *given.size);
  return text + fmt::format(", local rank {}", given.local_rank);
}

std::string KnownLaunchers() {
  std::string text;
  for (const Engine& engine : kEngines) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", engine.launcher, engine.rank);
  }
  return text;
}

}  // namespace muster
