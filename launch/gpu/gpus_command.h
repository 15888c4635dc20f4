// `muster gpus`, `muster gpus run` and `muster gpus --check`.
#pragma once

#include <string>
#include <vector>

namespace muster {

struct GpusArguments {
  bool json = false;
  double watch_s = 0;  // > 0: again and again, until somebody stops it
};

// Prints the cards of this machine, who uses them and who waits. Returns the exit code.
int RunGpus(const GpusArguments& arguments);

// Multiplies on each card that it can lock, adds on the CPU, and prints where. Each card in a
// process of its own; nothing of CUDA is ever in this one. Without a card it says what it would do.
// Returns the exit code: 1 if a card that it locked gave no, or a wrong, result.
int CheckGpus();

struct GpusRunArguments {
  int count = 1;
  double wait_s = 0;
  std::vector<std::string> command;
};

// Takes idle cards, and becomes the command, which sees these alone. Whatever it starts keeps the
// locks too, until the last of them ends. Throws Error; does not return otherwise.
[[noreturn]] void RunWithGpus(const GpusRunArguments& arguments);

}  // namespace muster
