// Adds the gradients of a host's workers, and the sums of other relays, so that the host sends one
// for all of them.
//
// A relay sees the orders of its workers. If they complete a larger subtree together, it waits for
// all their gradients of a chunk and sends the sum. If one of these orders is closed, because its
// worker is lost or was reset, the server takes no sum that contains it. Then the gradients of the
// other workers are sent one by one, also those that are in a sum which may be on its way: their
// memory stays unchanged until the weights that follow from them have arrived. (Another relay sends
// the parts of its own sum again.) They are also sent one by one if another worker is late, because
// the server must see who is.
//
// Pure logic: no link, and `now` is passed in. Owner: the relay's thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "common/link/wire_type.h"
#include "common/plan/slices.h"
#include "proto/wire.pb.h"
#include "worker/relay/gpu_gradients.h"
#include "worker/relay/relayed_gradient.h"

namespace muster {

class HostSums {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  // `slices`: of a batch. `type`: of all gradients, and of their sums. `gpus` knows where gradients
  // in GPUs are (only FP32); null: all are on the host.
  explicit HostSums(int64_t slices, WireType type = wire::FP32, const GpuGradients* gpus = nullptr)
      : slices_(slices), type_(type), gpus_(gpus) {}

  // The server gave an order to the worker `via`, which has this rank.
  void Ordered(uint32_t via, uint32_t rank, const wire::Train& train);
  // A gradient arrived, with its values, from a worker or relay that may send it (Relay::Check).
  // Returns what to send now: the gradient, a sum, or nothing yet.
  std::vector<RelayedGradient> Add(RelayedGradient gradient, Time now);
  // Returns the gradients that wait for others which are late: none has arrived for some time, or
  // they have been arriving for longer than a step usually takes.
  std::vector<RelayedGradient> TakeLate(Time now);
  // The orders of the worker `via` are closed. Returns the gradients of others that must be sent by
  // themselves.
  std::vector<RelayedGradient> Close(uint32_t via);
  // The weights that follow from this chunk of the step have arrived.
  void Forget(int64_t step, uint32_t chunk);

 private:
  // One worker's gradient in a sum. The numbers of orders are unique.
  struct Leaf {
    uint32_t via = 0, rank = 0;
    uint64_t order = 0;
    TreeNode node;
    uint32_t buffer = 0;
    // Whether a message names this one.
    bool Is(uint32_t its_rank, const auto& named) const;
  };
  // The gradient of one leaf, or another relay's sum over several.
  struct Part {
    size_t first_leaf = 0, leaves = 0;
    RelayedGradient gradient;
  };
  // The gradients of one chunk that have arrived.
  struct Parts {
    std::vector<Part> parts;  // from left to right
    bool added = false;
  };
  struct Group {
    TreeNode node;
    std::vector<Leaf> leaves;  // from left to right
    bool open = true;          // adds gradients
    Time begun{}, progress{};  // when its first and its newest gradient arrived
    // By chunk. They are kept after they were added, in case an order is closed.
    std::map<uint32_t, Parts> arrived;
  };
  struct Step {
    std::vector<Leaf> leaves;  // may be added to those of other workers
    bool is_planned = false;   // groups are known
    std::vector<Group> groups;
  };

  void Plan(Step& step, Time now);
  // Returns where this gradient belongs in the group, if it does.
  static std::optional<Part> Place(const Group& group, RelayedGradient& gradient);
  // Closes the group and returns the gradients in it that wait for others.
  static std::vector<RelayedGradient> Release(Group& group);
  RelayedGradient Sum(const Group& group, const Parts& arrived) const;
  // Return the sum of all parts. Empty: no samples.
  Payload SumOf(const Group& group, const Parts& arrived) const;
  template <typename T>
  Payload SumOnHost(const Group& group, const Parts& arrived, size_t bytes) const;
  Payload SumInGpus(const Group& group, const Parts& arrived, size_t bytes) const;
  // Adds up the parts below a node. `values` returns those of a part, or null if it has none.
  // `add(a, b, place)` adds them in memory number `place`, which may hold `a`. Returns where the
  // sum is; null: no samples.
  template <typename T>
  const T* AddBelow(const TreeNode& node, const Parts& arrived, size_t place, const auto& values,
                    const auto& add) const;

  const int64_t slices_;
  const WireType type_;
  const GpuGradients* const gpus_;
  std::map<int64_t, Step> steps_;
  std::optional<Time> planned_at_;  // the newest step
  Duration usual_step_{};
};

}  // namespace muster
