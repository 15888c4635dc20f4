// `muster gpus` and `muster gpus run`.
#pragma once

#include <string>
#include <vector>

namespace muster {

// Prints the GPUs of this machine, their users, and the jobs that wait for GPUs. Returns the exit
// code.
int RunGpus(bool json);

struct GpusRunArguments {
  int count = 1;
  double wait_s = 0;
  bool or_cpu = false;  // execute the command without a GPU if there are not enough
  std::vector<std::string> command;
};

// Takes idle GPUs, and executes the command, which sees only these. The command and all processes
// that it starts hold the locks until the last one ends. Throws Error; does not return otherwise.
[[noreturn]] void RunWithGpus(const GpusRunArguments& arguments);

}  // namespace muster
