// What the server has told this worker, and what follows from it: joining, orders, weights that
// have come, the end.
//
// A decider: no thread, lock, channel or clock. `now` is passed in. The client calls it with its
// lock held, but for address() and reset_pending(), which any thread may ask for at any time.
//
// Owner: the client.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <optional>
#include <string>

#include "common/base/error.h"
#include "common/link/link.h"
#include "worker/client/terms.h"

namespace muster {

struct SessionOptions {
  std::string endpoint;  // for people
  uint64_t job = 0;
  size_t arena_floats = 0;
  double start_s = 60;    // until Welcome
  double silence_s = 20;  // without a sign of life from the server
};

class Session {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class State {
    kJoining,
    kRankTaken,  // joining; another worker has the rank, and may be gone unnoticed
    kWelcomed,
    kStopped,  // the server said Stop
  };

  Session(SessionOptions options, Time now);

  State state() const { return state_; }
  bool welcomed() const { return welcomed_; }
  // What ended the communication, if something did.
  const std::exception_ptr& error() const { return error_; }
  void SetError(std::exception_ptr error) {
    if (error_ == nullptr) error_ = std::move(error);
  }
  const Terms& terms() const { return terms_; }
  // The sender of what this worker says from now on.
  wire::Address address() const;
  // Reset has come, and the order that says so has not been taken: what this worker says goes
  // nowhere.
  bool reset_pending() const { return reset_pending_; }

  // A message has come; `stored`: the weights in it are where they belong (IsNextWeights).
  void Handle(const FromServer& event, bool stored, Time now);
  bool IsNextWeights(const wire::WeightsChunk& weights) const {
    return terms_.IsVersion(weights.version()) && arrived_.IsNext(weights);
  }
  // Sets the error of a server that has been silent for too long. This process itself did not run
  // for `suspension` of the time since the last look.
  void CheckSilence(Time now, std::chrono::steady_clock::duration suspension);

  // The worker says Hello, for the first time or over another connection (Hello.instead_of_local).
  void BeginJoin(Time now);
  // Joining: the latest time to look again.
  Time JoinBy() const;
  // Sets the error if joining has taken too long.
  void CheckJoin(Time now);
  // The rank is taken, and Hello is to be said again: why, and until when, for people.
  std::string AskAgain();

  // The order to follow next; null: none has come.
  const Order* NextOrder() const { return orders_.empty() ? nullptr : &orders_.front(); }
  Order TakeOrder();

  // The worker waits for a chunk of W(version), or of its average.
  enum class Of { kWeights, kAverage };
  // Reset ends either wait; an urgent order the second.
  enum class Wait { kForChunk, kForUrgent };
  enum class Arrival {
    kComing,
    kHere,
    kInstead,  // the order that ends the wait has come
    kNever,    // WhyNever says why
  };
  Arrival Look(int64_t version, size_t chunk, Of of, Wait wait) const;
  std::exception_ptr WhyNever(int64_t version) const;

  // True once for each incarnation: Leave is to be said.
  bool LeaveIsDue();

 private:
  enum class Addressee { kMine, kFormer, kOther };
  Addressee AddresseeOf(const wire::Address& address) const;
  void HandleWelcome(const FromServer& event);
  void HandleRefused(const wire::Refused& refused);
  void HandleWeights(const wire::WeightsChunk& weights, bool stored);
  // `order`: as it was read from `message`; empty: it does not fit.
  void HandleOrder(std::optional<Order> order, const google::protobuf::Message& message);
  void HandleReset(const wire::Reset& reset);
  void HandleStop(const wire::Stop& stop);
  bool IsOver(const Order& order) const;
  void Fail(Error error) { SetError(std::make_exception_ptr(std::move(error))); }
  // What the server would not send to a worker of its job.
  void SetMisfit(const google::protobuf::Message& message);

  const SessionOptions options_;
  Time began_;
  State state_ = State::kJoining;
  bool welcomed_ = false, stop_completed_ = false;
  std::exception_ptr error_;
  Terms terms_;
  std::atomic<uint32_t> rank_ = 0, incarnation_ = 0;  // given by the server
  std::atomic<bool> reset_pending_ = false;
  bool leave_said_ = false;
  std::string refusal_, stop_reason_;
  std::deque<Order> orders_;  // urgent ones first
  Arrivals arrived_;
  Time last_heard_;
};

}  // namespace muster
