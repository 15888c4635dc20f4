// What a round of push, average, update and pull costs (docs/DESIGN.md, "What a round costs"): from
// the model's size and a few numbers that are measured on the machine.
#pragma once

namespace muster {

struct RoundShape {
  double bytes = 0;  // M: of the weights
  int workers = 1;   // K
  int states = 1;    // s: arrays of the optimizer (SGD 0, momentum 1, Adam 2)
  double chunk_bytes = 1 << 20;
};

// Of one machine, as `muster bench` measures them.
struct MachineCosts {
  double local_latency_s = 0;       // a round of next to no bytes, over shared memory
  double tcp_latency_s = 0;         // … over TCP on the loopback interface
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
// … over TCP: every byte of K gradients and K copies of the weights goes through the kernel, on
// the same cores as everything else.
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

}  // namespace muster
