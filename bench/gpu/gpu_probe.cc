// Measures properties of a GPU machine that Muster depends on and that are not documented reliably:
// which host memory the driver can lock, the speed of copies, the length of waits, and the time to
// load libraries. Prints tables. Needs only the driver, so it also runs without cuBLAS and cuDNN.
//
//   gpu_probe                          # all parts
//   gpu_probe --parts find             # only checks whether there is a GPU
//
// The exit code is 2 if there is no driver or no GPU.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/program_options.h"

namespace muster {
namespace {

constexpr int kNoGpu = 2;
constexpr int kRepeats = 7;

struct Options {
  std::vector<std::string> parts = {"find",     "device", "registration", "transfers",
                                    "pageable", "memcpy", "sleep",        "libraries"};
  int64_t bytes = int64_t{256} << 20;
};

void Require(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  throw Error(ExitCode::kFailure, "cannot {}: CUDA error: {} ({})", what,
              cudaGetErrorString(result), cudaGetErrorName(result));
}

using Clock = std::chrono::steady_clock;

double SecondsOf(const std::function<void()>& run) {
  const auto begin = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double MedianSeconds(const std::function<void()>& run) {
  run();  // warm-up: touches pages and starts engines
  std::vector<double> seconds(kRepeats);
  for (double& of_one : seconds) of_one = SecondsOf(run);
  return Median(seconds);
}

double GigabytesPerSecond(int64_t bytes, double seconds) {
  return static_cast<double>(bytes) / seconds * 1e-9;
}

// One stream, one GPU buffer and one page-locked buffer for copies.
class Machine {
 public:
  explicit Machine(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    Require(cudaSetDevice(0), "use the GPU");
    Require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "create a stream");
    Require(cudaStreamCreateWithFlags(&other_stream_, cudaStreamNonBlocking), "create a stream");
    Require(cudaMalloc(&device_, 2 * bytes_), "allocate GPU memory");
    Require(cudaHostAlloc(&locked_, 2 * bytes_, cudaHostAllocDefault), "allocate locked memory");
    std::memset(locked_, 1, 2 * bytes_);
  }
  ~Machine() {
    (void)cudaFreeHost(locked_);
    (void)cudaFree(device_);
    (void)cudaStreamDestroy(other_stream_);
    (void)cudaStreamDestroy(stream_);
  }
  Machine(const Machine&) = delete;

  size_t bytes() const { return bytes_; }
  std::byte* device() const { return static_cast<std::byte*>(device_); }
  std::byte* locked() const { return static_cast<std::byte*>(locked_); }

  void ToDevice(const void* from, size_t bytes) const { Copy(device_, from, bytes, true, stream_); }
  void FromDevice(void* to, size_t bytes) const { Copy(to, device_, bytes, false, stream_); }
  void Wait() const { Require(cudaStreamSynchronize(stream_), "wait for a copy"); }
  // Copies in both directions at the same time.
  void BothWays(size_t bytes) const {
    ToDevice(locked(), bytes);
    Copy(locked() + bytes_, device() + bytes_, bytes, false, other_stream_);
    Wait();
    Require(cudaStreamSynchronize(other_stream_), "wait for a copy");
  }

 private:
  static void Copy(void* to, const void* from, size_t bytes, bool in, cudaStream_t stream) {
    Require(cudaMemcpyAsync(to, from, bytes, in ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
                            stream),
            "copy");
  }

  const size_t bytes_;
  cudaStream_t stream_{}, other_stream_{};
  void *device_ = nullptr, *locked_ = nullptr;
};

// Finds a GPU, or prints why there is none.
bool FindGpu() {
  int count = 0;
  cudaError_t result = cudaSuccess;
  const double seconds = SecondsOf([&] { result = cudaGetDeviceCount(&count); });
  if (result == cudaErrorInsufficientDriver) {
    int driver = 0;
    (void)cudaDriverGetVersion(&driver);
    const auto text = [](int version) {
      return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
    };
    fmt::print(stderr, "{}, but this build needs {} or later\n",
               driver == 0 ? "no NVIDIA driver (libcuda.so.1)"
                           : "the NVIDIA driver supports CUDA " + text(driver),
               text(CUDART_VERSION));
    return false;
  }
  if (result != cudaSuccess || count == 0) {
    fmt::print(stderr, "no usable GPU: {}\n",
               result == cudaSuccess ? "CUDA found none" : cudaGetErrorString(result));
    return false;
  }
  fmt::print("{} GPU{}; CUDA started in {:.2f} s\n", count, count == 1 ? "" : "s", seconds);
  return true;
}

void ShowDevice(const Machine&) {
  int driver = 0, runtime = 0;
  Require(cudaDriverGetVersion(&driver), "get the driver's version");
  Require(cudaRuntimeGetVersion(&runtime), "get the runtime's version");
  cudaDeviceProp p{};
  Require(cudaGetDeviceProperties(&p, 0), "get the GPU's properties");
  fmt::print("| device | value |\n|---|---|\n");
  const auto row = [](const char* name, const auto& value) {
    fmt::print("| {} | {} |\n", name, value);
  };
  row("name", p.name);
  row("architecture", fmt::format("sm_{}{}", p.major, p.minor));
  row("multiprocessors", p.multiProcessorCount);
  row("memory, MiB", p.totalGlobalMem >> 20);
  row("L2, MiB", p.l2CacheSize >> 20);
  row("copy engines", p.asyncEngineCount);
  row("ECC", p.ECCEnabled);
  row("CUDA of the driver", driver);
  row("CUDA of this program", runtime);
  row("registers host memory", p.hostRegisterSupported);
  row("registers read-only host memory", p.hostRegisterReadOnlySupported);
  row("uses host pointers as device addresses", p.canUseHostPointerForRegisteredMem);
  row("reads pageable memory", p.pageableMemoryAccess);
}

// Host memory as in a worker: a private mapping, or one that is shared with the server.
class Mapping {
 public:
  Mapping(size_t bytes, bool shared) : bytes_(bytes) {
    if (shared) {
      file_ = ::memfd_create("gpu_probe", MFD_CLOEXEC);
      if (file_ < 0 || ::ftruncate(file_, static_cast<off_t>(bytes)) != 0) {
        throw Error(ExitCode::kFailure, "cannot create shared memory: {}", std::strerror(errno));
      }
      writer_ = Map();
    }
    memory_ = Map();
    if (!shared) writer_ = memory_;
    std::memset(writer_, 7, bytes);
  }
  ~Mapping() {
    if (writer_ != memory_) ::munmap(writer_, bytes_);
    ::munmap(memory_, bytes_);
    if (file_ >= 0) ::close(file_);
  }
  Mapping(const Mapping&) = delete;

  void* memory() const { return memory_; }
  // The server's mapping, which stays writable after the memory is protected. Null for private
  // memory.
  void* writer() const { return file_ >= 0 ? writer_ : nullptr; }
  void Protect() const {
    if (::mprotect(memory_, bytes_, PROT_READ) != 0) {
      throw Error(ExitCode::kFailure, "cannot protect memory: {}", std::strerror(errno));
    }
  }

 private:
  void* Map() const {
    void* const at = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                            file_ >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, file_, 0);
    if (at != MAP_FAILED) return at;
    throw Error(ExitCode::kFailure, "cannot map {} bytes: {}", bytes_, std::strerror(errno));
  }

  const size_t bytes_;
  int file_ = -1;
  void *memory_ = nullptr, *writer_ = nullptr;
};

// Whether the GPU reads `value` from every byte of the memory.
bool Arrives(const Machine& machine, const void* memory, int value) {
  std::memset(machine.locked(), ~value, machine.bytes());
  machine.ToDevice(memory, machine.bytes());
  machine.FromDevice(machine.locked(), machine.bytes());
  machine.Wait();
  const std::byte* const got = machine.locked();
  return std::all_of(got, got + machine.bytes(),
                     [value](std::byte b) { return b == static_cast<std::byte>(value); });
}

struct RegistrationCase {
  const char* name;
  bool protect_first, protect_after;
  unsigned flags;
};

void ShowRegistration(const Machine& machine, bool shared, const RegistrationCase& c) {
  const Mapping mapping(machine.bytes(), shared);
  if (c.protect_first) mapping.Protect();
  cudaError_t result = cudaSuccess;
  const double seconds =
      SecondsOf([&] { result = cudaHostRegister(mapping.memory(), machine.bytes(), c.flags); });
  fmt::print("| {} | {} | {} | ", shared ? "shared (memfd)" : "own", c.name,
             cudaGetErrorName(result));
  if (result != cudaSuccess) {
    (void)cudaGetLastError();
    fmt::print(" | | |\n");
    return;
  }
  if (c.protect_after) mapping.Protect();
  std::string arrives = Arrives(machine, mapping.memory(), 7) ? "yes" : "NO";
  if (mapping.writer() != nullptr) {
    std::memset(mapping.writer(), 9, machine.bytes());
    arrives +=
        Arrives(machine, mapping.memory(), 9) ? ", also after a change" : ", NOT after a change";
  }
  const double copy = MedianSeconds([&] {
    machine.ToDevice(mapping.memory(), machine.bytes());
    machine.Wait();
  });
  const auto bytes = static_cast<int64_t>(machine.bytes());
  fmt::print("{:.2f} | {:.1f} | {} |\n", seconds * 1e3 * 100e6 / static_cast<double>(bytes),
             GigabytesPerSecond(bytes, copy), arrives);
  Require(cudaHostUnregister(mapping.memory()), "unlock memory");
}

void ShowRegistrations(const Machine& machine) {
  fmt::print(
      "| memory | registered as | CUDA status | ms per 100 MB | to the GPU, GB/s | "
      "bytes arrive |\n|---|---|---|---|---|---|\n");
  for (const bool shared : {false, true}) {
    for (const RegistrationCase& c :
         {RegistrationCase{"read-write", false, false, cudaHostRegisterDefault},
          RegistrationCase{"read-write, then mprotect", false, true, cudaHostRegisterDefault},
          RegistrationCase{"read-only, with the flag", true, false, cudaHostRegisterReadOnly},
          RegistrationCase{"read-only, without", true, false, cudaHostRegisterDefault}}) {
      ShowRegistration(machine, shared, c);
    }
  }
  // Also try to register two ranges that share a page.
  const Mapping mapping(machine.bytes(), true);
  auto* const memory = static_cast<std::byte*>(mapping.memory());
  const size_t half = machine.bytes() / 2 + 64;
  Require(cudaHostRegister(memory, half, cudaHostRegisterDefault), "lock memory");
  const cudaError_t second =
      cudaHostRegister(memory + half, machine.bytes() - half, cudaHostRegisterDefault);
  fmt::print("| shared (memfd) | second range in a page | {} | | | |\n", cudaGetErrorName(second));
  if (second == cudaSuccess) (void)cudaHostUnregister(memory + half);
  (void)cudaGetLastError();
  Require(cudaHostUnregister(memory), "unlock memory");
}

std::vector<size_t> SizesUpTo(size_t most) {
  std::vector<size_t> sizes;
  for (size_t size = size_t{64} << 10; size < most; size *= 16) sizes.push_back(size);
  sizes.push_back(most);
  return sizes;
}

void ShowTransfers(const Machine& machine) {
  fmt::print(
      "| page-locked | to the GPU, GB/s | from the GPU | both ways at once |\n|---|---|---|---|\n");
  for (const size_t size : SizesUpTo(machine.bytes())) {
    const auto rate = [&](int64_t bytes, const std::function<void()>& copy) {
      return GigabytesPerSecond(bytes, MedianSeconds([&] {
                                  copy();
                                  machine.Wait();
                                }));
    };
    const auto bytes = static_cast<int64_t>(size);
    fmt::print("| {} KiB | {:.2f} | {:.2f} | {:.2f} |\n", size >> 10,
               rate(bytes, [&] { machine.ToDevice(machine.locked(), size); }),
               rate(bytes, [&] { machine.FromDevice(machine.locked(), size); }),
               rate(2 * bytes, [&] { machine.BothWays(size); }));
  }
}

void ShowPageable(const Machine& machine) {
  fmt::print("| pageable | to the GPU, GB/s | from the GPU |\n|---|---|---|\n");
  std::vector<std::byte> memory(machine.bytes());
  for (const size_t size : SizesUpTo(machine.bytes())) {
    const auto rate = [&](const std::function<void()>& copy) {
      return GigabytesPerSecond(static_cast<int64_t>(size), MedianSeconds([&] {
                                  copy();
                                  machine.Wait();
                                }));
    };
    fmt::print("| {} KiB | {:.2f} | {:.2f} |\n", size >> 10,
               rate([&] { machine.ToDevice(memory.data(), size); }),
               rate([&] { machine.FromDevice(memory.data(), size); }));
  }
}

// Copies from memory shared with a server to page-locked memory: the cost of a bounce buffer.
void ShowMemcpy(const Machine& machine) {
  fmt::print("| threads | memcpy, GB/s |\n|---|---|\n");
  const Mapping from(machine.bytes(), true);
  const int most = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  for (int threads = 1;; threads = std::min(2 * threads, most)) {
    const double seconds = MedianSeconds([&] {
      std::vector<std::thread> team;
      const size_t part = machine.bytes() / static_cast<size_t>(threads);
      for (int i = 0; i < threads; ++i) {
        const size_t at = part * static_cast<size_t>(i);
        team.emplace_back([&, at] {
          std::memcpy(machine.locked() + at, static_cast<std::byte*>(from.memory()) + at, part);
        });
      }
      for (std::thread& thread : team) thread.join();
    });
    fmt::print("| {} | {:.1f} |\n", threads,
               GigabytesPerSecond(static_cast<int64_t>(machine.bytes()), seconds));
    if (threads == most) return;
  }
}

void ShowSleeps(const Machine&) {
  fmt::print("| nanosleep | timer slack | median, µs | longest of 200, µs |\n|---|---|---|---|\n");
  const int own = ::prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
  for (const int slack : {own, 1}) {
    (void)::prctl(PR_SET_TIMERSLACK, slack, 0, 0, 0);
    for (const int micros : {1, 20, 50}) {
      std::vector<double> seconds;
      for (int i = 0; i < 200; ++i) {
        const timespec wait{0, micros * 1000};
        seconds.push_back(SecondsOf([&] { (void)::nanosleep(&wait, nullptr); }));
      }
      fmt::print("| {} µs | {} ns | {:.1f} | {:.1f} |\n", micros, slack, Median(seconds) * 1e6,
                 *std::max_element(seconds.begin(), seconds.end()) * 1e6);
    }
  }
  (void)::prctl(PR_SET_TIMERSLACK, own, 0, 0, 0);
}

// The resident memory of this process.
int64_t ResidentMegabytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE) >> 20;
}

// Loads a library and, if `create` is given, creates a handle, which is never freed.
void ShowLibrary(const std::string& name, const char* create) {
  void* library = nullptr;
  const int64_t before = ResidentMegabytes();
  const double load = SecondsOf([&] { library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL); });
  if (library == nullptr) {
    const char* const why = ::dlerror();
    fmt::print("| {} | not found: {} | | |\n", name, why == nullptr ? "" : why);
    return;
  }
  std::string started;
  if (create != nullptr) {
    const auto make = reinterpret_cast<int (*)(void**)>(::dlsym(library, create));
    int status = -1;
    void* handle = nullptr;
    const double seconds = SecondsOf([&] {
      if (make != nullptr) status = make(&handle);
    });
    started = fmt::format("{:.2f} (status {})", seconds, status);
  }
  fmt::print("| {} | {:.2f} | {} | {} |\n", name, load, started, ResidentMegabytes() - before);
}

void ShowLibraries(const Machine&) {
  fmt::print("| library | load, s | start, s | resident, MiB |\n|---|---|---|---|\n");
  const std::string major = std::to_string(CUDART_VERSION / 1000);
  ShowLibrary("libcublasLt.so." + major, "cublasLtCreate");
  ShowLibrary("libcublas.so." + major, "cublasCreate_v2");
  ShowLibrary("libcudnn.so.9", "cudnnCreate");
}

void Run(const Options& options) {
  const std::map<std::string, void (*)(const Machine&)> parts = {
      {"device", ShowDevice},       {"registration", ShowRegistrations},
      {"transfers", ShowTransfers}, {"pageable", ShowPageable},
      {"memcpy", ShowMemcpy},       {"sleep", ShowSleeps},
      {"libraries", ShowLibraries}};
  std::vector<std::pair<std::string, void (*)(const Machine&)>> chosen;
  for (const std::string& name : options.parts) {
    if (name == "find") continue;
    const auto part = parts.find(name);
    if (part == parts.end()) throw Error(ExitCode::kUsage, "--parts: unknown part {}", name);
    chosen.emplace_back(*part);
  }
  if (chosen.empty()) return;
  const Machine machine(options.bytes);
  for (const auto& [name, show] : chosen) {
    fmt::print("\n");
    show(machine);
    (void)std::fflush(stdout);
  }
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  muster::Options options;
  muster::ProgramOptions program("Measures properties of a machine with a GPU.");
  program
      .Add("--parts", options.parts,
           "find, device, registration, transfers, pageable, memcpy, "
           "sleep, libraries")
      .SeparatedBy(',');
  program.Add("--bytes", options.bytes, "size of the largest copy").AsBytes().ShowDefault();
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  try {
    if (!muster::FindGpu()) return muster::kNoGpu;
    muster::Run(options);
  } catch (const muster::Error& error) {
    fmt::print(stderr, "gpu_probe: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
