#include "cli/hosts/host_facts.h"

#include <sys/statvfs.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "common/base/process.h"
#include "common/base/version.h"
#include "common/config/config.h"
#include "common/config/hardware.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

using Json = nlohmann::json;

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    return colon == std::string::npos ? "" : line.substr(colon + 2);
  }
  return "";
}

std::string BootId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

double AvailableMemory() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  for (double kibibytes = 0; file >> key >> kibibytes; std::getline(file, unit)) {
    if (key == "MemAvailable:") return 1024 * kibibytes;
  }
  return 0;
}

template <typename T>
void TakeField(const Json& object, const char* name, T& value) {
  const auto found = object.find(name);
  if (found == object.end()) return;
  if constexpr (std::is_same_v<T, std::string>) {
    if (found->is_string()) value = found->template get<std::string>();
  } else {
    if (found->is_number()) value = found->template get<T>();
  }
}

}  // namespace

HostFacts ReadHostFacts(const config::Config* config) {
  HostFacts facts{
      .version = kVersion, .boot = BootId(), .hostname = HostName(), .processor = ProcessorName()};
  facts.instructions = config::Server::InstructionSet_Name(HostInstructionSets().back());
  facts.cores = AvailableCores();
  facts.memory_available = AvailableMemory();
  struct statvfs disk {};
  if (::statvfs(".", &disk) == 0) {
    facts.disk_free = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
  }
  if (config != nullptr && !HasProgram(*config)) facts.data = CountSamples(*config);
  return facts;
}

Json JsonOf(const HostFacts& facts) {
  return {{"version", facts.version},
          {"boot", facts.boot},
          {"hostname", facts.hostname},
          {"processor", facts.processor},
          {"instructions", facts.instructions},
          {"cores", facts.cores},
          {"memory_available", facts.memory_available},
          {"disk_free", facts.disk_free},
          {"train", facts.data.train},
          {"test", facts.data.test},
          {"validation", facts.data.validation},
          {"data_problem", facts.data.problem},
          {"data_code", static_cast<int>(facts.data.code)},
          {"address", facts.address},
          {"interface", facts.interface},
          {"relay_port", facts.relay_port},
          {"mtu", facts.mtu},
          {"unconnected", facts.unconnected}};
}

HostFacts HostFactsFrom(const Json& object) {
  HostFacts facts;
  TakeField(object, "version", facts.version);
  TakeField(object, "boot", facts.boot);
  TakeField(object, "hostname", facts.hostname);
  TakeField(object, "processor", facts.processor);
  TakeField(object, "instructions", facts.instructions);
  TakeField(object, "cores", facts.cores);
  TakeField(object, "memory_available", facts.memory_available);
  TakeField(object, "disk_free", facts.disk_free);
  TakeField(object, "train", facts.data.train);
  TakeField(object, "test", facts.data.test);
  TakeField(object, "validation", facts.data.validation);
  TakeField(object, "data_problem", facts.data.problem);
  int code = static_cast<int>(ExitCode::kData);
  TakeField(object, "data_code", code);
  facts.data.code = static_cast<ExitCode>(code);
  TakeField(object, "address", facts.address);
  TakeField(object, "interface", facts.interface);
  TakeField(object, "relay_port", facts.relay_port);
  TakeField(object, "mtu", facts.mtu);
  TakeField(object, "unconnected", facts.unconnected);
  return facts;
}

}  // namespace muster
