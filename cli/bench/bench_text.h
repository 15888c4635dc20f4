// What `muster bench` measured, in words and tables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench/cost_model.h"

namespace muster {

// Of one size of the weights; seconds.
struct BenchRow {
  double bytes = 0;
  double update_s = 0, limit_s = 0;     // the update alone; the memory limit for it
  double local_s = 0, local_p99_s = 0;  // a round, over shared memory
  double tcp_s = 0, tcp_p99_s = 0;      // … over TCP on the loopback interface
};

// The user's model; one row is of its size (4 KiB at least).
struct BenchModel {
  std::string name;
  RoundShape shape;
  // Multiply-adds of a worker's share of a step count twice; 0: unknown.
  double flops_per_worker = 0;
};

struct BenchResult {
  int workers = 2;
  int server_threads = 1;
  std::string optimizer, instruction_set;
  std::string wire_dtype = "FP32";              // over TCP
  std::string wanted_instruction_set = "AUTO";  // server.instruction_set
  int64_t chunk_bytes = 0;                      // cluster.chunk_bytes; 0: by size
  uint32_t io_threads = 1;                      // server.io_threads
  std::vector<BenchRow> rows;  // ascending; the first is of next to no bytes, the last a large one
  BenchModel model;
};

// From the smallest row the latencies, from the largest the speeds.
MachineCosts CostsOf(const BenchResult& result);

std::vector<std::string> BenchLines(const BenchResult& result);

}  // namespace muster
