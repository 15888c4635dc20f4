#include "tests/cuda/software_gpu/violation.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include "tests/cuda/software_gpu/control.h"

namespace muster::software_gpu {
namespace {

struct Recorded {
  std::mutex mutex;
  int recorders = 0;
  std::vector<std::string> violations;
};

Recorded& recorded() {
  static auto* const only = new Recorded;  // never destroyed: also used while the process ends
  return *only;
}

struct ClosePipe {
  void operator()(FILE* pipe) const { pclose(pipe); }
};

}  // namespace

void ReportViolation(const std::string& what) {
  Recorded& all = recorded();
  const std::lock_guard lock(all.mutex);
  if (all.recorders > 0) {
    all.violations.push_back(what);
    return;
  }
  fmt::print(stderr, "software GPU: {}\n", what);
  std::abort();
}

std::string DescribeCode(const void* address) {
  Dl_info info = {};
  if (dladdr(address, &info) == 0) return fmt::format("{}", address);
  const auto offset = static_cast<const char*>(address) - static_cast<char*>(info.dli_fbase);
  std::string module = info.dli_fname;
  std::error_code none;
  // For the program itself, use its path instead of argv[0].
  if (const auto program = std::filesystem::read_symlink("/proc/self/exe", none);
      program.filename() == std::filesystem::path(module).filename()) {
    module = program;
  }
  const std::unique_ptr<FILE, ClosePipe> pipe(
      popen(fmt::format("addr2line -Cfpe '{}' {:#x} 2>/dev/null", module, offset).c_str(), "r"));
  std::array<char, 1000> line = {};
  if (pipe == nullptr || std::fgets(line.data(), line.size(), pipe.get()) == nullptr) {
    return fmt::format("{}+{:#x}", module, offset);
  }
  std::string text = line.data();
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

ViolationRecorder::ViolationRecorder() {
  const std::lock_guard lock(recorded().mutex);
  ++recorded().recorders;
}

ViolationRecorder::~ViolationRecorder() {
  const std::lock_guard lock(recorded().mutex);
  if (--recorded().recorders == 0) recorded().violations.clear();
}

std::vector<std::string> ViolationRecorder::Take() {
  const std::lock_guard lock(recorded().mutex);
  return std::exchange(recorded().violations, {});
}

}  // namespace muster::software_gpu
