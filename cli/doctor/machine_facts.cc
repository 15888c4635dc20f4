#include "cli/doctor/machine_facts.h"

#include <gnu/libc-version.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "cli/doctor/probes.h"
#include "common/config/hardware.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

std::string Quoted(const std::string& path) {
  std::string quoted = "'";
  for (const char c : path) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

// Asks the loader, as ldd does: nothing of the program runs.
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
  const int answer = ::adjtimex(&state);  // asks only
  facts.clock_synchronized = answer >= 0 && answer != TIME_ERROR;
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  facts.year = 1900 + utc.tm_year;
}

// The directory, or what of its path is there.
std::string Existing(const std::string& directory) {
  fs::path path = fs::absolute(directory);
  std::error_code ignored;
  while (!fs::is_directory(path, ignored) && path.has_relative_path()) path = path.parent_path();
  return path;
}

}  // namespace

MachineFacts ReadMachineFacts(const std::vector<std::string>& programs,
                              const std::string& run_parent) {
  MachineFacts facts;
  utsname system{};
  ::uname(&system);
  facts.system = std::string(system.sysname) + " " + system.release;
  facts.libc = std::string("glibc ") + ::gnu_get_libc_version();
  for (const std::string& program : programs) facts.programs.push_back(ReadProgram(program));
  facts.processor = FirstLineAfter("/proc/cpuinfo", "model name");
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

}  // namespace muster
