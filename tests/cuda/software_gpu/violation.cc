#include "tests/cuda/software_gpu/violation.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
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
  static auto* const only = new Recorded;  // also there while the process ends
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
  const std::unique_ptr<FILE, ClosePipe> pipe(
      popen(fmt::format("addr2line -Cfpe '{}' {:#x} 2>/dev/null",
                        std::string(info.dli_fname) == program_invocation_name ? "/proc/self/exe"
                                                                               : info.dli_fname,
                        offset)
                .c_str(),
            "r"));
  std::array<char, 1000> line = {};
  if (pipe == nullptr || std::fgets(line.data(), line.size(), pipe.get()) == nullptr) {
    return fmt::format("{}+{:#x}", info.dli_fname, offset);
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
