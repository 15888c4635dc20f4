#include "bench/process_memory.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>

namespace muster::bench {
namespace {

double PssBytes(pid_t process) {
  std::ifstream in("/proc/" + std::to_string(process) + "/smaps_rollup");
  for (std::string key; in >> key;) {
    double kilobytes = 0;
    if (key == "Pss:" && in >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

}  // namespace

MemoryWatch::MemoryWatch(std::vector<pid_t> processes)
    : thread_([this, processes = std::move(processes)](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          double sum = 0;
          for (const pid_t process : processes) sum += PssBytes(process);
          peak_ = std::max(peak_, sum);
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
      }) {}

double MemoryWatch::Peak() {
  thread_.request_stop();
  thread_.join();
  return peak_;
}

}  // namespace muster::bench
