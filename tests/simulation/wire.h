// One direction of a simulated connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "common/link/link.h"
#include "tests/simulation/scheduler.h"

namespace muster::testing {

using Bytes = std::vector<std::byte>;

// The network card of a host. Bytes of all its connections leave and arrive one after the other, in
// the order in which their transfers begin. The switch in between keeps any number of them, so no
// sender is held up.
struct Port {
  Time out_free{}, in_free{};
};

class Wire {
 public:
  struct Delays {
    Duration most_latency, most_transfer;
  };
  Wire(Scheduler& scheduler, Chance& chance, Delays delays)
      : scheduler_(scheduler), chance_(chance), delays_(delays) {}

  // `arrive` gets the tensor as it was when it left; null without one.
  using Arrive = std::function<void(std::shared_ptr<const Bytes> tensor)>;
  void Send(Arrive arrive) { Deliver(std::move(arrive), nullptr, {}); }
  void Send(Arrive arrive, std::span<const std::byte> tensor, const Urgency& urgency);
  // Drops queued tensors of older steps.
  void DropBefore(int64_t step);
  void DropAll() { waiting_.clear(); }
  // Tensors then take the time that these cards need; otherwise a random one.
  void Join(Port& from, Port& to, double bytes_per_second) {
    from_ = &from;
    to_ = &to;
    bytes_per_second_ = bytes_per_second;
  }
  // Makes tensors slower, permanently.
  void SlowDown(int64_t factor) { factor_ *= factor; }
  // Delays all arrivals.
  void Hold(Duration duration);
  // The sender has ended. Queued data is lost, and optionally also data under way.
  void Cut(bool loses_what_is_under_way);

 private:
  struct Waiting {
    Arrive arrive;
    std::span<const std::byte> tensor;
  };
  struct Times {
    Duration leaves, arrives;  // from now
  };
  Times TimesOf(size_t bytes);
  void Deliver(Arrive arrive, std::shared_ptr<const Bytes> tensor, Duration after);
  void Transfer();

  Scheduler& scheduler_;
  Chance& chance_;
  const Delays delays_;
  std::multimap<Urgency, Waiting> waiting_;
  bool busy_ = false;
  int64_t factor_ = 1;
  Port *from_ = nullptr, *to_ = nullptr;
  double bytes_per_second_ = 0;
  Time last_arrival_{}, held_until_{};
  uint64_t cuts_ = 0;
  bool loses_ = false;
};

}  // namespace muster::testing
