#include "cli/doctor/facts.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gnu/libc-version.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <utility>

#include "cli/gpu/gpu.h"
#include "cli/gpu/job_gpus.h"
#include "cli/gpu/lock_folder.h"
#include "cli/process/held_file.h"
#include "cli/process/json_program.h"
#include "common/base/error.h"
#include "common/base/fd.h"
#include "common/base/resource_limits.h"
#include "common/base/text.h"
#include "common/config/hardware.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

template <typename Address>
std::string TryToListen(int family, const Address& address, socklen_t size) {
  const UniqueFd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return ErrorText(errno);
  const int yes = 1;  // allows a port that a run has just closed
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(socket.get(), 1) != 0) {
    return ErrorText(errno);
  }
  return "";
}

// The following functions return "" or the error.

// Tries a sealed memfd, which is what weights and gradients use.
std::string TryToShareMemory() {
  constexpr off_t kBytes = 1 << 20;
  const UniqueFd memory(::memfd_create("muster-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.valid() || ::ftruncate(memory.get(), kBytes) != 0) return ErrorText(errno);
  void* const place = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (place == MAP_FAILED) return ErrorText(errno);
  static_cast<char*>(place)[kBytes - 1] = 1;
  const bool sealed = ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE) == 0;
  std::string error = sealed ? "" : ErrorText(errno);
  ::munmap(place, kBytes);
  return error;
}

std::string TryLoopbackTcp() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return TryToListen(AF_INET, address, sizeof address);
}

std::string TryUnixSocket() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // Without a name the kernel chooses one of the abstract namespace.
  return TryToListen(AF_UNIX, address, offsetof(sockaddr_un, sun_path));
}

std::string Quoted(const std::string& path) {
  std::string quoted = "'";
  for (const char c : path) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

// Queries the loader, as ldd does, without running the program.
ProgramFacts ReadProgram(const std::string& path) {
  ProgramFacts facts{.path = path, .there = ::access(path.c_str(), X_OK) == 0};
  if (!facts.there) return facts;
  const auto close = [](std::FILE* file) { ::pclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> pipe(
      ::popen(("LD_TRACE_LOADED_OBJECTS=1 " + Quoted(path) + " 2>/dev/null").c_str(), "re"), close);
  if (!pipe) return facts;
  char line[4096];
  while (std::fgets(line, sizeof line, pipe.get()) != nullptr) {
    std::istringstream words(line);
    std::string name, arrow, file;
    if (!(words >> name >> arrow >> file) || arrow != "=>") continue;
    if (file == "not") {
      facts.missing.push_back(name);
      continue;
    }
    std::error_code error;
    const fs::path real = fs::canonical(file, error);
    facts.libraries.push_back(error ? name : real.filename().string());
  }
  return facts;
}

std::string FirstLineAfter(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(": ");
    return colon == std::string::npos ? line : line.substr(colon + 2);
  }
  return "";
}

double SoftLimit(__rlimit_resource which, double* hard = nullptr) {
  rlimit limit{};
  if (::getrlimit(which, &limit) != 0) return kUnlimited;
  const auto value = [](rlim_t one) {
    return one == RLIM_INFINITY ? kUnlimited : static_cast<double>(one);
  };
  if (hard != nullptr) *hard = value(limit.rlim_max);
  return value(limit.rlim_cur);
}

void ReadLimits(MachineFacts& facts) {
  facts.open_files = SoftLimit(RLIMIT_NOFILE, &facts.most_open_files);
  facts.address_space = SoftLimit(RLIMIT_AS);
  facts.locked_memory = SoftLimit(RLIMIT_MEMLOCK);
  facts.file_size = SoftLimit(RLIMIT_FSIZE);
  facts.processes = SoftLimit(RLIMIT_NPROC);
}

void ReadClocks(MachineFacts& facts) {
  std::ifstream("/sys/devices/system/clocksource/clocksource0/current_clocksource") >>
      facts.clock_source;
  timex state{};
  const int answer = ::adjtimex(&state);  // changes nothing
  facts.clock_synchronized = answer >= 0 && answer != TIME_ERROR;
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  facts.year = 1900 + utc.tm_year;
}

// The directory or, if it does not exist, its nearest existing parent.
std::string Existing(const std::string& directory) {
  fs::path path = fs::absolute(directory);
  std::error_code ignored;
  while (!fs::is_directory(path, ignored) && path.has_relative_path()) path = path.parent_path();
  return path;
}

}  // namespace

std::string TryToWrite(const std::string& directory) {
  const UniqueFd file(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file.valid()) return ::write(file.get(), "x", 1) == 1 ? "" : ErrorText(errno);
  if (errno != EOPNOTSUPP && errno != EISDIR) return ErrorText(errno);
  // This file system does not support O_TMPFILE.
  std::string name = directory + "/.muster-doctor-XXXXXX";
  const UniqueFd named(::mkostemp(name.data(), O_CLOEXEC));
  if (!named.valid()) return ErrorText(errno);
  ::unlink(name.c_str());
  return ::write(named.get(), "x", 1) == 1 ? "" : ErrorText(errno);
}

MachineFacts ReadMachineFacts(const std::vector<std::string>& programs,
                              const std::string& run_parent) {
  MachineFacts facts;
  utsname system{};
  ::uname(&system);
  facts.system = std::string(system.sysname) + " " + system.release;
  facts.libc = std::string("glibc ") + ::gnu_get_libc_version();
  for (const std::string& program : programs) facts.programs.push_back(ReadProgram(program));
  facts.processor = FirstLineAfter("/proc/cpuinfo", "model name");
  facts.bf16 = __builtin_cpu_supports("avx512bf16");
  facts.cores = AvailableCores();
  if (double load[1]; ::getloadavg(load, 1) == 1) facts.load = load[0];
  for (const auto set : HostInstructionSets()) {
    facts.instruction_sets.push_back(config::Server::InstructionSet_Name(set));
  }
  facts.memory = ReadMachineMemory();
  ReadLimits(facts);
  const std::string existing = Existing(run_parent);
  struct statvfs disk {};
  if (::statvfs(existing.c_str(), &disk) == 0) {
    facts.disk_free = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
  }
  facts.disk_error = TryToWrite(existing);
  facts.shared_memory_error = TryToShareMemory();
  facts.tcp_error = TryLoopbackTcp();
  facts.unix_error = TryUnixSocket();
  ReadClocks(facts);
  return facts;
}

namespace {

constexpr double kOpenSeconds = 120;  // the driver may have to wake the GPU and load kernels

// A config that requests these GPUs, to test Muster on them.
config::Config OfDevices(const std::string& devices) {
  config::Config config;
  config.mutable_worker()->set_workers_per_gpu(1);
  config.mutable_worker()->set_devices(devices);
  return config;
}

// Runs a worker that loads the backend and compares the GPU that it sees with the CPU. Returns
// false if that fails; `who` then begins the error.
bool TryBackend(const GpuQuestion& question, const std::vector<std::string>& environment,
                const std::string& who, GpuFacts& facts) {
  std::vector<std::string> words{"describe-gpu"};
  std::optional<HeldFile> held;
  if (question.config != nullptr) {
    config::Config config = *question.config;
    ResolveForMachine(config, AvailableCores());
    held = HeldFile::OfText(ConfigText(config));
    words.insert(words.end(), {"--config", held->path()});
  }
  try {
    const auto lines = RunJsonProgram(question.worker_program, words, kOpenSeconds, environment);
    facts.backend = lines.at(0).value("arithmetic", "");
    return true;
  } catch (const Error& error) {
    facts.backend_error = who + error.what();
    facts.computes_wrongly = error.code() == ExitCode::kRefused;
    return false;
  }
}

// Locks the GPUs, and computes on each until one fails. Only a program itself knows what it
// computes.
void TryGpus(const GpuQuestion& question, JobGpus& gpus, GpuFacts& facts) {
  try {
    facts.tickets = ReadTickets(LockFolder::OfHost());
    gpus.Take({.others_choose_s = 1});
  } catch (const Error& error) {
    facts.take_error = error.what();
    return;
  }
  std::string last;
  bool works = question.config == nullptr || !HasProgram(*question.config);
  for (const WorkerPlace& place : gpus.Places()) {
    if (std::exchange(last, place.gpu.uuid) == place.gpu.uuid) continue;
    facts.taken += (facts.taken.empty() ? "" : ", ") + GpuText(place.gpu);
    works = works && TryBackend(question, place.environment,
                                fmt::format("GPU {}: ", place.gpu.index), facts);
  }
}

}  // namespace

GpuFacts ReadGpuFacts(const GpuQuestion& question) {
  GpuFacts facts;
  try {
    facts.seen = OpenNvml()->Look();
  } catch (const Error& error) {
    facts.driver_error = error.what();
    return facts;
  }
  std::string typed;
  config::Config config = OfDevices("auto:1");
  for (const Setting& setting : question.settings) {
    if (setting.path != "worker.devices") continue;
    typed = setting.origin;
    if (question.config == nullptr) config = OfDevices(setting.value);
  }
  if (question.config != nullptr) config = *question.config;
  try {
    const GpuTerms terms{.typed = typed,
                         .no_backend = WhyNoGpuBackend(config, question.worker_program)};
    JobGpus gpus(config, question.config_path, terms);
    facts.job = gpus.asked() && (question.config != nullptr || !typed.empty());
    facts.wanted = facts.job && !config.worker().devices().empty();
    if (gpus.wanted()) {
      if (facts.job) facts.workers = gpus.workers();
      TryGpus(question, gpus, facts);
    } else if (gpus.asked()) {
      facts.why_cpu = Join(gpus.Lines(), "; ");
      const bool program = question.config != nullptr && HasProgram(*question.config);
      if (!facts.seen.gpus.empty()) {
        facts.backend_error = terms.no_backend;
      } else if (facts.wanted && terms.no_backend.empty() && !program) {
        TryBackend(question, {}, "", facts);  // whether only the driver is missing
      }
    } else if (!facts.seen.gpus.empty()) {
      config::Config idle = OfDevices("auto:1");
      idle.mutable_worker()->set_soft_placement(true);  // the job needs no GPU
      JobGpus any(idle, "", {});
      if (any.wanted()) TryGpus(question, any, facts);
    }
  } catch (const Error& error) {
    if (error.code() == ExitCode::kUsage) throw;
    facts.job = facts.wanted = true;
    facts.take_error = error.what();
  }
  return facts;
}

}  // namespace muster
