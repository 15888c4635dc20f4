// What `muster bench` measured, in words and tables, and what follows from it by a model of the
// cost of a round of push, average, update and pull (docs/DESIGN.md, "What a round costs").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster {

struct RoundShape {
  double bytes = 0;  // M: of the weights
  int workers = 1;   // K
  int states = 1;    // s: arrays of the optimizer (SGD 0, momentum 1, Adam 2)
  double chunk_bytes = 1 << 20;
};

// The costs of one machine, as `muster bench` measures them.
struct MachineCosts {
  double local_latency_s = 0;       // a round of next to no bytes, over shared memory
  double tcp_latency_s = 0;         // over TCP on the loopback interface
  double memory_bytes_per_s = 0;    // of the pass, by all of the server's threads
  double loopback_bytes_per_s = 0;  // through the server's sockets, both directions together
};

// Bytes that the pass must read and write: K gradients, weights and state; new weights and state.
double UpdateBytes(const RoundShape& shape);

// Seconds.
double UpdateSeconds(const RoundShape& shape, double memory_bytes_per_s);
// All workers on the server's host, over shared memory: latency, and the pass. Of models that do
// not stay in the cache.
double LocalRound(const RoundShape& shape, const MachineCosts& costs);
// Over TCP every byte of K gradients and K copies of the weights passes through the kernel, on the
// same cores as everything else.
double LoopbackRound(const RoundShape& shape, const MachineCosts& costs);

// A network of full-duplex links of equal speed, one worker per host.
struct HostNetwork {
  double bits_per_s = 0;
  double hop_s = 50e-6;  // from a process on one host to one on another

  // What TCP over Ethernet leaves for data: 1,448 of 1,538 bytes of a frame.
  double BytesPerSecond() const { return bits_per_s / 8 * 1448 / 1538; }
};

// One server that has a host and a link of its own: K gradients come in while K copies of the
// weights go out, chunk by chunk, so one direction's time counts, and one chunk for everybody more,
// whose weights cannot leave before its gradients came. Or the pass, if that takes longer.
double ServerRound(const RoundShape& shape, const HostNetwork& network, double memory_bytes_per_s);
// Ring all-reduce among the workers (Patarasu, Yuan 2009), then the optimizer's step in each.
double RingRound(const RoundShape& shape, const HostNetwork& network, double memory_bytes_per_s);

// The times for one size of the weights, in seconds.
struct BenchRow {
  double bytes = 0;
  double update_s = 0, limit_s = 0;     // the update alone; the memory limit for it
  double local_s = 0, local_p99_s = 0;  // a round, over shared memory
  double tcp_s = 0, tcp_p99_s = 0;      // over TCP on the loopback interface
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
