#include "cli/gpu/visible_devices.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <type_traits>

#include "common/base/error.h"
#include "common/base/fd.h"
#include "common/base/resource_limits.h"
#include "common/base/text.h"

namespace muster {
namespace {

constexpr unsigned kDriverSeconds = 60;  // the first use of a driver takes several seconds
constexpr size_t kMostGpus = 256;        // 4 KiB of UUIDs, which a pipe takes in one write
constexpr int kNoDevice = 100;           // an error code of CUDA
constexpr int kInvalidDevice = 101;      // CUDA_VISIBLE_DEVICES names an unknown GPU

using Uuid = std::array<char, 16>;

// Queries the driver. Returns false if that fails.
bool ListUuids(const char* library, std::vector<Uuid>& uuids) {
  void* const cuda = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (cuda == nullptr) return false;
  const auto find = [cuda](auto*& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(cuda, name));
    return function != nullptr;
  };
  int (*init)(unsigned) = nullptr;
  int (*get_count)(int*) = nullptr;
  int (*get)(int*, int) = nullptr;
  int (*get_uuid)(Uuid*, int) = nullptr;
  if (!find(init, "cuInit") || !find(get_count, "cuDeviceGetCount") || !find(get, "cuDeviceGet")) {
    return false;
  }
  // Only the _v2 function supports MIG.
  if (!find(get_uuid, "cuDeviceGetUuid_v2") && !find(get_uuid, "cuDeviceGetUuid")) return false;
  int count = 0;
  int result = init(0);
  if (result == 0) result = get_count(&count);
  if (result == kNoDevice || result == kInvalidDevice) return true;
  for (int i = 0, device = 0; result == 0 && i < std::min(count, int{kMostGpus}); ++i) {
    result = get(&device, i);
    if (result == 0) result = get_uuid(&uuids.emplace_back(), device);
  }
  return result == 0;
}

[[noreturn]] void AnswerInChild(int fd, pid_t parent, const char* library) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGALRM, SIG_DFL);
  ::alarm(kDriverSeconds);
  std::vector<Uuid> uuids;
  const bool known = ListUuids(library, uuids);
  const auto size = static_cast<ssize_t>(uuids.size() * sizeof(Uuid));
  const bool written = ::write(fd, uuids.data(), uuids.size() * sizeof(Uuid)) == size;
  ::_exit(known && written ? 0 : 1);  // skips the exit handlers of the parent process
}

// The part of "GPU-1b2c…" or "MIG-1b2c…" after the kind, in lower case and without dashes.
std::string Digits(const std::string& uuid) {
  std::string digits;
  for (const char c :
       uuid.starts_with("GPU-") || uuid.starts_with("MIG-") ? uuid.substr(4) : uuid) {
    if (c != '-') digits += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return digits;
}

// Returns the UUIDs of the GPUs that the driver lists. A GPU that NVML does not report cannot be
// locked.
std::vector<std::string> Matched(const std::vector<std::string>& answered,
                                 const GpuSnapshot& seen) {
  std::vector<std::string> uuids;
  for (const std::string& digits : answered) {
    for (const Gpu& gpu : seen.gpus) {
      if (!gpu.uuid.empty() && Digits(gpu.uuid) == digits) uuids.push_back(gpu.uuid);
    }
  }
  return uuids;
}

}  // namespace

std::optional<std::vector<std::string>> AskCuda(const char* library) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw Error(ExitCode::kFailure, "cannot create a pipe: {}", ErrorText(errno));
  }
  UniqueFd read_end(ends[0]), write_end(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) AnswerInChild(write_end.get(), parent, library);
  if (child < 0) {
    throw Error(ExitCode::kFailure, "cannot start a process to query CUDA: {}", ErrorText(errno));
  }
  write_end.Reset();
  // The child writes all UUIDs at once, or none.
  std::array<Uuid, kMostGpus> uuids;
  ssize_t got;
  do {
    got = ::read(read_end.get(), uuids.data(), sizeof uuids);
  } while (got < 0 && errno == EINTR);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (got < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  std::vector<std::string> digits(static_cast<size_t>(got) / sizeof(Uuid));
  for (size_t i = 0; i < digits.size(); ++i) {
    for (const char c : uuids[i]) {
      digits[i] += fmt::format("{:02x}", static_cast<unsigned char>(c));
    }
  }
  return digits;
}

VisibleGpus ReadVisibleDevices(
    const char* value, const GpuSnapshot& seen,
    const std::function<std::optional<std::vector<std::string>>()>& ask) {
  VisibleGpus visible;
  if (value == nullptr) {
    for (const Gpu& gpu : seen.gpus) {
      if (!gpu.uuid.empty()) visible.uuids.push_back(gpu.uuid);
    }
    return visible;
  }
  visible.limited = true;
  visible.value = OneLine(value, 200);
  if (*value == '\0' || seen.gpus.empty()) return visible;  // no GPU is visible
  const std::optional<std::vector<std::string>> answer = ask();
  visible.no_driver = !answer;
  if (answer) visible.uuids = Matched(*answer, seen);
  return visible;
}

VisibleGpus VisibleHere(const GpuSnapshot& seen) {
  return ReadVisibleDevices(std::getenv("CUDA_VISIBLE_DEVICES"), seen,
                            [] { return AskCuda("libcuda.so.1"); });
}

}  // namespace muster
