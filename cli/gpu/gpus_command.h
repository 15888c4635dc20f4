// `muster gpus` and `muster gpus run`.
#pragma once

#include <string>
#include <vector>

namespace muster {

// Prints the GPUs of this machine, who uses them and who waits. Returns the exit code.
int RunGpus(bool json);

struct GpusRunArguments {
  int count = 1;
  double wait_s = 0;
  std::vector<std::string> command;
};

// Takes idle GPUs, and becomes the command, which sees these alone. Whatever it starts keeps the
// locks too, until the last of them ends. Throws Error; does not return otherwise.
[[noreturn]] void RunWithGpus(const GpusRunArguments& arguments);

}  // namespace muster
