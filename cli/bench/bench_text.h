// The results of `muster bench` as text and tables, with predictions from a cost model for a round
// of push, average, update and pull (docs/DESIGN.md, "What a round costs").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster {

struct RoundShape {
  double bytes = 0;  // M: size of the weights
  int workers = 1;   // K: number of workers
  int states = 1;    // s: number of optimizer state arrays (SGD 0, momentum 1, Adam 2)
  double chunk_bytes = 1 << 20;
};

// The costs of one machine, as `muster bench` measures them.
struct MachineCosts {
  double local_latency_s = 0;       // a round of almost no bytes over shared memory
  double tcp_latency_s = 0;         // the same over TCP on the loopback interface
  double memory_bytes_per_s = 0;    // the update pass on all server threads
  double loopback_bytes_per_s = 0;  // through the server's sockets, both directions together
};

// The bytes that the update pass reads (K gradients, weights, state) and writes (weights, state).
double UpdateBytes(const RoundShape& shape);

// The time for the update pass, in seconds.
double UpdateSeconds(const RoundShape& shape, double memory_bytes_per_s);
// The time for a round with all workers on the server's host, over shared memory: the latency and
// the update pass. Valid for models that do not fit into the cache.
double LocalRound(const RoundShape& shape, const MachineCosts& costs);
// The time for the same round over TCP: K gradients and K copies of the weights pass through the
// kernel, on the same cores as everything else.
double LoopbackRound(const RoundShape& shape, const MachineCosts& costs);

// A network of full-duplex links of equal speed. The workers of a host count as one.
struct HostNetwork {
  double bits_per_s = 0;
  double hop_s = 50e-6;  // time from a process on one host to one on another

  // The payload rate of TCP over Ethernet: 1,448 of a frame's 1,538 bytes.
  double BytesPerSecond() const { return bits_per_s / 8 * 1448 / 1538; }
};

// The time for a round with one server on the first of `shape.workers` hosts and a binomial tree of
// relays. The server's link carries a gradient for each level of the tree while as many copies of
// the weights leave, chunk by chunk, so the time is that of one direction. The last chunk passes
// all levels twice, and waits at the server for those of the other levels. If the update pass takes
// longer, its time counts instead.
double RelayRound(const RoundShape& shape, const HostNetwork& network, double memory_bytes_per_s);
// The time for a ring all-reduce among the workers (Patarasu, Yuan 2009), followed by an optimizer
// step in each worker.
double RingRound(const RoundShape& shape, const HostNetwork& network, double memory_bytes_per_s);

// The times for one size of the weights, in seconds.
struct BenchRow {
  double bytes = 0;
  double update_s = 0, limit_s = 0;     // the update alone, and its limit by memory bandwidth
  double local_s = 0, local_p99_s = 0;  // a round over shared memory
  double tcp_s = 0, tcp_p99_s = 0;      // a round over TCP on the loopback interface
};

// The user's model; one row has its size (at least 4 KiB).
struct BenchModel {
  std::string name;
  RoundShape shape;
  // Operations in a worker's share of a step; a multiply-add counts as two. 0: unknown.
  double flops_per_worker = 0;
};

struct BenchResult {
  int workers = 2;
  int server_threads = 1;
  std::string optimizer, instruction_set;
  std::string wire_dtype = "FP32";              // for rounds over TCP
  std::string wanted_instruction_set = "AUTO";  // server.instruction_set
  int64_t chunk_bytes = 0;                      // cluster.chunk_bytes; 0: chosen by size
  uint32_t io_threads = 1;                      // server.io_threads
  std::vector<BenchRow> rows;  // ascending: the first has almost no bytes, the last is large
  BenchModel model;
};

// Takes the latencies from the smallest row and the speeds from the largest.
MachineCosts CostsOf(const BenchResult& result);

std::vector<std::string> BenchLines(const BenchResult& result);

}  // namespace muster
