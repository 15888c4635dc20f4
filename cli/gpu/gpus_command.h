// `muster gpus` and `muster gpus run`.
#pragma once

#include <string>
#include <vector>

namespace muster {

struct GpusArguments {
  bool json = false;
  double watch_s = 0;  // > 0: again and again, until somebody stops it
};

// Prints the GPUs of this machine, who uses them and who waits. Returns the exit code.
int RunGpus(const GpusArguments& arguments);

struct GpusRunArguments {
  int count = 1;
  double wait_s = 0;
  std::vector<std::string> command;
};

// Takes idle GPUs, and becomes the command, which sees these alone. Whatever it starts keeps the
// locks too, until the last of them ends. Throws Error; does not return otherwise.
[[noreturn]] void RunWithGpus(const GpusRunArguments& arguments);

}  // namespace muster
