// Preloaded into a job. Its workers sleep for each layer's product or convolution, one of them
// longer, so that their relative speeds do not depend on the load of the machine.
//   MUSTER_SLEEP_US      the delay of each call of oneDNN
//   MUSTER_SLOW_RANK     the slow rank
//   MUSTER_SLOW_FACTOR   multiplies the slow rank's delay
#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

namespace {

// The rank in this process's command line, or "" if it is no worker.
std::string Rank() {
  std::ifstream file("/proc/self/cmdline");
  for (std::string word; std::getline(file, word, '\0');) {
    if (word == "--rank" && std::getline(file, word, '\0')) return word;
  }
  return "";
}

double Number(const char* variable) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::atof(text) : 0;
}

std::chrono::duration<double, std::micro> Sleep() {
  const std::string rank = Rank();
  const char* const slow = std::getenv("MUSTER_SLOW_RANK");
  const bool is_slow = slow != nullptr && rank == slow;
  const double us = rank.empty() ? 0 : Number("MUSTER_SLEEP_US");
  return std::chrono::duration<double, std::micro>(is_slow ? us * Number("MUSTER_SLOW_FACTOR")
                                                           : us);
}

}  // namespace

extern "C" int dnnl_primitive_execute(const void* primitive, void* stream, int count,
                                      const void* arguments) {
  using Function = int (*)(const void*, void*, int, const void*);
  static const auto real = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "dnnl_primitive_execute"));
  static const auto sleep = Sleep();
  std::this_thread::sleep_for(sleep);
  return real(primitive, stream, count, arguments);
}
