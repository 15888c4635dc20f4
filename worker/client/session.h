// The protocol state of a worker: joining, orders, arrived weights, and the end of the run.
//
// A session only makes decisions. It has no thread, lock, channel or clock; callers pass `now`. The
// client calls it under its lock, except address() and reset_pending(), which any thread may call
// at any time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/link/link.h"
#include "worker/client/terms.h"

namespace muster {

struct SessionOptions {
  std::string endpoint;  // for messages
  uint64_t job = 0;
  size_t arena_floats = 0;
  double start_s = 60;    // limit for Welcome
  double silence_s = 20;  // limit without any message from the server
};

class Session {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class State {
    kJoining,
    kRankTaken,  // joining; another worker, perhaps a lost one, has the rank
    kWelcomed,
    kStopped,  // the server sent Stop
  };

  Session(SessionOptions options, Time now);

  State state() const { return state_; }
  bool welcomed() const { return welcomed_; }
  // The error that ended the communication, or null.
  const std::exception_ptr& error() const { return error_; }
  void SetError(std::exception_ptr error) {
    if (error_ == nullptr) error_ = std::move(error);
  }
  const Terms& terms() const { return terms_; }
  // The sender's address in messages from now on.
  wire::Address address() const;
  // Whether a Reset has arrived whose order has not been taken yet. Until it is taken, this
  // worker's messages are dropped.
  bool reset_pending() const { return reset_pending_; }

  // Handles a message. `stored`: whether its weights were copied to their buffer (see
  // IsNextWeights).
  void Handle(const FromServer& event, bool stored, Time now);
  bool IsNextWeights(const wire::WeightsChunk& weights) const {
    return terms_.IsVersion(weights.version()) && arrived_.IsNext(weights);
  }
  // Sets an error if the server has been silent for too long. `suspension` is the time for which
  // this process was suspended since the last call.
  void CheckSilence(Time now, std::chrono::steady_clock::duration suspension);

  // Called when the worker sends Hello, for the first time or over another connection
  // (Hello.instead_of_local).
  void BeginJoin(Time now);
  // The time by which CheckJoin must be called again while joining.
  Time JoinBy() const;
  // Sets an error if joining has taken too long.
  void CheckJoin(Time now);
  // Called when the rank is taken and the worker will send Hello again. Returns the reason and the
  // time limit, for the log.
  std::string AskAgain();

  // The next order, or null.
  const Order* NextOrder() const { return orders_.empty() ? nullptr : &orders_.front(); }
  Order TakeOrder();

  // Whether to wait for a chunk of W(version) or of its average.
  enum class Of { kWeights, kAverage };
  // Reset ends both kinds of wait; other urgent orders end only kForUrgent.
  enum class Wait { kForChunk, kForUrgent };
  enum class Arrival {
    kComing,
    kHere,
    kInstead,  // an order that ends the wait has arrived
    kNever,    // see WhyNever
  };
  Arrival Look(int64_t version, size_t chunk, Of of, Wait wait) const;
  std::exception_ptr WhyNever(int64_t version) const;

  // The answer to the last Ask, once.
  std::optional<wire::Answer> TakeAnswer() { return std::exchange(answer_, std::nullopt); }
  // Why no answer can come any more, or null.
  std::exception_ptr WhyNoAnswer() const;

  // Whether Leave must be sent now. True once for each incarnation.
  bool LeaveIsDue();

 private:
  enum class Addressee { kMine, kFormer, kOther };
  Addressee AddresseeOf(const wire::Address& address) const;
  void HandleWelcome(const FromServer& event);
  void HandleRefused(const wire::Refused& refused);
  void HandleWeights(const wire::WeightsChunk& weights, bool stored);
  // `order` was read from `message`. It is empty if the message does not fit this job.
  void HandleOrder(std::optional<Order> order, const google::protobuf::Message& message);
  void HandleReset(const wire::Reset& reset);
  void HandleStop(const wire::Stop& stop);
  bool IsOver(const Order& order) const;
  void Fail(Error error) { SetError(std::make_exception_ptr(std::move(error))); }
  // Sets the error for a message that contradicts this job.
  void SetMisfit(const google::protobuf::Message& message);

  const SessionOptions options_;
  Time began_;
  State state_ = State::kJoining;
  bool welcomed_ = false, stop_completed_ = false, is_lost_ = false;
  std::exception_ptr error_;
  Terms terms_;
  std::atomic<uint32_t> rank_ = 0, incarnation_ = 0;  // assigned by the server
  std::atomic<bool> reset_pending_ = false;
  bool leave_said_ = false;
  std::optional<wire::Answer> answer_;
  std::string refusal_, stop_reason_;
  std::deque<Order> orders_;  // urgent ones first
  Arrivals arrived_;
  Time last_heard_;
};

}  // namespace muster
