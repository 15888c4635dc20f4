// muster-worker: a worker of a job, or another process that computes or connects on its host.
// Started by the commands of muster and by libmuster_client.so.
#include <fmt/core.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/base/version.h"
#include "worker/commands.h"

namespace muster {
namespace {

struct Command {
  std::string_view name, text;
  int (*run)(int argc, char** argv);
};

constexpr Command kCommands[] = {
    {"train", "a worker of a job: computes gradients", TrainCommand},
    {"program", "the helper of a program that trains its own model", ProgramCommand},
    {"relay", "connects the workers of a host to the server", RelayCommand},
    {"memory", "prints the memory use of a worker", MemoryCommand},
    {"predict", "prints the network's outputs", PredictCommand},
    {"evaluate", "evaluates weights", EvaluateCommand},
    {"describe-gpu", "tests a GPU, and prints what it is", DescribeGpuCommand},
};

int Main(int argc, char** argv) {
  const std::string_view wanted = argc > 1 ? argv[1] : "";
  for (const Command& command : kCommands) {
    if (command.name != wanted) continue;
    std::string name = fmt::format("muster-worker {}", wanted);  // for --help
    argv[1] = name.data();
    return command.run(argc - 1, argv + 1);
  }
  const bool helps = wanted == "--help" || wanted == "-h";
  if (wanted == "--version") {
    fmt::print("muster {}\n", kVersion);
    return 0;
  }
  std::FILE* const to = helps ? stdout : stderr;
  fmt::print(to, "usage: muster-worker COMMAND [options]; muster-worker COMMAND --help\n");
  for (const Command& command : kCommands)
    fmt::print(to, "  {:14}{}\n", command.name, command.text);
  if (helps) return 0;
  fmt::print(to,
             "error: expected a command, got '{}': are muster, libmuster_client.so and "
             "muster-worker from the same installation?\n",
             Printable(wanted));
  return static_cast<int>(ExitCode::kUsage);
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::Main(argc, argv); }
