// Derives the job of sync_bench from its options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "proto/config.pb.h"

namespace muster::bench {

struct SyncOptions {
  uint32_t workers = 2;
  size_t bytes = 100 << 20;
  std::string transport = "LOCAL";
  std::string optimizer = "MOMENTUM";
  std::string wire_dtype = "FP32";
  std::string encryption = "NONE";
  std::string instruction_set = "AUTO";
  uint32_t server_threads = 2;
  uint32_t io_threads = 1;
  int64_t chunk_bytes = 0;
  int64_t rounds = 0;
  bool write = false;
  bool memory = false;
  bool json = false;
};

inline constexpr int64_t kWarmUpRounds = 5;

struct SyncJob {
  SyncOptions options;
  config::Config config;  // one dense layer of about options.bytes
  std::string token;
  std::string endpoint;
};

// Throws Error(kUsage) for an invalid option.
SyncJob MakeSyncJob(const SyncOptions& options);

}  // namespace muster::bench
