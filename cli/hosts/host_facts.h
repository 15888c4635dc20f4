// What a host tells about itself before a job starts on it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/data/count_samples.h"
#include "proto/config_fwd.h"

namespace muster {

struct HostFacts {
  std::string version;       // of Muster
  std::string boot;          // the kernel's random name for the time since the machine started
  std::string hostname;      // of the machine or container
  std::string processor;     // "AMD EPYC 7R32"
  std::string instructions;  // the widest instruction set of a server's update, "AVX512"
  int cores = 0;             // that a process may use
  double memory_available = 0, disk_free = 0;  // bytes
  DataCount data;                              // of the job's data on this host
  std::string address;                         // from which it reached the asking host, or ""
  std::string interface;                       // with this address
  int relay_port = 0;       // at this address, free; 0: this host cannot have a relay
  int mtu = 0;              // of that interface
  std::string unconnected;  // why it could not reach the asking host, or ""
};

// The facts of this host, except those about its connection. Counts the job's data if `config` is
// not null.
HostFacts ReadHostFacts(const config::Config* config);

nlohmann::json JsonOf(const HostFacts& facts);
// Missing or wrong values keep their defaults.
HostFacts HostFactsFrom(const nlohmann::json& object);

}  // namespace muster
