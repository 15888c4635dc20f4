#include "worker/client/session.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "common/base/process.h"

namespace muster {
namespace {

using Duration = std::chrono::steady_clock::duration;

Duration Seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

// How long a worker repeats Hello for a rank that is taken. If that rank's worker is gone, the
// server notices it within this time.
double RankPatience(const SessionOptions& options) { return options.silence_s + 2; }

}  // namespace

Session::Session(SessionOptions options, Time now)
    : options_(std::move(options)), began_(now), last_heard_(now) {}

wire::Address Session::address() const {
  wire::Address address;
  address.set_job(options_.job);
  address.set_rank(rank_);
  address.set_incarnation(incarnation_);
  return address;
}

// ---------------------------------------------------------------------------------- joining

void Session::BeginJoin(Time now) {
  error_ = nullptr;
  state_ = State::kJoining;
  welcomed_ = false;
  began_ = last_heard_ = now;
}

// The server reports missing ranks at its own deadline, so the worker waits a little longer. A
// worker beyond the initial ones waits for the start as long as the server sends heartbeats.
Session::Time Session::JoinBy() const {
  const Time start = began_ + Seconds(options_.start_s + 5);
  if (last_heard_ == began_) return start;
  return std::max(start, last_heard_ + Seconds(options_.silence_s));
}

void Session::CheckJoin(Time now) {
  if (welcomed_) return;
  const double rank_patience_s = RankPatience(options_);
  if (state_ == State::kRankTaken && now >= began_ + Seconds(rank_patience_s)) {
    return Fail(Error(ExitCode::kRefused,
                      "the server refused this worker: {} and did not end within {:.0f} s; end it "
                      "first or use another rank",
                      refusal_, rank_patience_s));
  }
  if (now < JoinBy()) return;
  Fail(Error(ExitCode::kDeadline, "no Welcome from the server at {} within {:.0f} s: {}",
             options_.endpoint, std::chrono::duration<double>(now - began_).count(),
             last_heard_ > began_
                 ? fmt::format("it has been silent for {:.0f} s (deadlines.silence_s)",
                               std::chrono::duration<double>(now - last_heard_).count())
                 : "check that it is running and reachable from this host"));
}

std::string Session::AskAgain() {
  state_ = State::kJoining;
  return fmt::format("{}; retrying for up to {:.0f} s in case that worker is gone", refusal_,
                     RankPatience(options_));
}

void Session::HandleRefused(const wire::Refused& refused) {
  refusal_ = refused.reason();
  if (refused.rank_is_taken() && !welcomed_) {
    state_ = State::kRankTaken;
  } else {
    Fail(Error(ExitCode::kRefused, "the server refused this worker: {}", refusal_));
  }
}

void Session::HandleWelcome(const FromServer& event) {
  std::optional<Terms> terms = ReadWelcome(event.message.welcome(), options_.arena_floats);
  if (!terms || welcomed_) {
    return Fail(Error(ExitCode::kPeerFailed,
                      "the server's Welcome does not fit this worker's {} parameters",
                      options_.arena_floats));
  }
  terms_ = std::move(*terms);
  rank_ = event.message.address().rank();
  incarnation_ = event.message.address().incarnation();
  state_ = State::kWelcomed;
  welcomed_ = true;
}

// ---------------------------------------------------------------------------------- messages

Session::Addressee Session::AddresseeOf(const wire::Address& address) const {
  if (address.job() != options_.job) return Addressee::kOther;
  if (!welcomed_) return Addressee::kMine;  // Welcome assigns rank and incarnation
  if (address.rank() != rank_) return Addressee::kOther;
  if (address.incarnation() == incarnation_) return Addressee::kMine;
  return address.incarnation() < incarnation_ ? Addressee::kFormer : Addressee::kOther;
}

void Session::Handle(const FromServer& event, bool stored, Time now) {
  if (event.kind == FromServer::Kind::kLost) {
    is_lost_ = true;
    if (state_ != State::kStopped) {
      Fail(Error(ExitCode::kPeerFailed, "the connection to the server ended"));
    }
    return;
  }
  last_heard_ = now;
  const wire::ServerMessage& message = event.message;
  const Addressee addressee = AddresseeOf(message.address());
  if (event.kind == FromServer::Kind::kMessage && message.has_refused()) {
    HandleRefused(message.refused());
  } else if (event.kind == FromServer::Kind::kMalformed || addressee == Addressee::kOther) {
    Fail(Error(ExitCode::kPeerFailed,
               "the server sent a malformed message, or one for another worker"));
  } else if (addressee == Addressee::kFormer) {
    return;  // the message was sent before this worker was reset
  } else if (message.has_welcome()) {
    HandleWelcome(event);
  } else if (message.has_weights_chunk()) {
    HandleWeights(message.weights_chunk(), stored);
  } else if (message.has_activate() && terms_.IsVersion(message.activate().version())) {
    arrived_ = Arrivals(terms_.chunks.size(), message.activate().version());
  } else if (message.has_answer()) {
    answer_ = message.answer();
  } else if (state_ == State::kStopped) {
    return;  // Stop is the last order
  } else if (message.has_train()) {
    HandleOrder(ReadTrain(message.train(), terms_), message.train());
  } else if (message.has_reset()) {
    HandleReset(message.reset());
  } else if (message.has_evaluate()) {
    HandleOrder(ReadEvaluate(message.evaluate(), terms_), message.evaluate());
  } else if (message.has_stop()) {
    HandleStop(message.stop());
  }
}

void Session::SetMisfit(const google::protobuf::Message& message) {
  Fail(Error(ExitCode::kPeerFailed,
             "the server's {} {{ {} }} does not fit this job ({} steps, {} slices) or this worker "
             "({} gradient buffers)",
             message.GetDescriptor()->name(), message.ShortDebugString(), terms_.plan.total_steps,
             terms_.plan.slices, terms_.buffers));
}

void Session::HandleWeights(const wire::WeightsChunk& weights, bool stored) {
  if (!stored) return SetMisfit(weights);  // not the next version, or incomplete
  arrived_.Mark(weights);
  std::erase_if(orders_, [this](const Order& order) { return IsOver(order); });
}

void Session::HandleOrder(std::optional<Order> order, const google::protobuf::Message& message) {
  if (!order) return SetMisfit(message);
  if (IsOver(*order)) return;
  // Urgent orders go before all others, but after earlier urgent ones.
  const auto place =
      order->urgent() ? std::ranges::find_if_not(orders_, &Order::urgent) : orders_.end();
  orders_.insert(place, std::move(*order));
}

// A step is over as soon as all weights that it produces have arrived, because other workers have
// then completed it. Computing it now would overwrite a gradient of the next step in the same
// buffer.
bool Session::IsOver(const Order& order) const {
  if (!order.taken_over) return false;
  for (size_t c = 0; c < terms_.chunks.size(); ++c) {
    if (!arrived_.Has(order.version + 1, c, false)) return false;
  }
  return true;
}

void Session::HandleReset(const wire::Reset& reset) {
  reset_pending_ = true;  // set before the new address is used
  leave_said_ = false;    // the former incarnation's Leave may have been lost
  incarnation_ = reset.incarnation();
  arrived_ = {};
  orders_.clear();
  orders_.push_back({.kind = Order::Kind::kReset});
}

void Session::HandleStop(const wire::Stop& stop) {
  state_ = State::kStopped;
  stop_reason_ = stop.reason();
  stop_completed_ = stop.completed();
  if (!welcomed_ && stop.completed()) {
    Fail(Error(ExitCode::kOk, "this worker is not needed: {}", stop_reason_));
  } else if (!welcomed_) {
    Fail(Error(ExitCode::kPeerFailed, "the server stopped the run: {}", stop_reason_));
  }
  orders_.push_back({.kind = Order::Kind::kStop,
                     .version = stop.has_step() ? stop.step() : -1,
                     .completed = stop.completed(),
                     .reason = stop_reason_});
}

void Session::CheckSilence(Time now, Duration suspension) {
  if (!welcomed_) return;
  last_heard_ = WithoutSuspension(last_heard_, suspension, now);
  const double silent = std::chrono::duration<double>(now - last_heard_).count();
  if (silent <= options_.silence_s) return;
  Fail(Error(ExitCode::kDeadline,
             "no message from the server for {:.0f} s (deadlines.silence_s); it is stopped, stuck "
             "or unreachable",
             silent));
}

// ---------------------------------------------------------------------------------- the worker

Order Session::TakeOrder() {
  Order order = std::move(orders_.front());
  orders_.pop_front();
  if (order.kind == Order::Kind::kReset) reset_pending_ = false;
  return order;
}

Session::Arrival Session::Look(int64_t version, size_t chunk, Of of, Wait wait) const {
  const bool reset = reset_pending_;
  if (!reset && arrived_.Has(version, chunk, of == Of::kAverage)) return Arrival::kHere;
  if (error_ != nullptr) return Arrival::kNever;
  const bool urgent = !orders_.empty() && orders_.front().urgent();
  if (reset || (wait == Wait::kForUrgent && urgent)) return Arrival::kInstead;
  if (state_ == State::kStopped || arrived_.BeginAfter(version)) return Arrival::kNever;
  return Arrival::kComing;
}

std::exception_ptr Session::WhyNever(int64_t version) const {
  if (error_ != nullptr) return error_;
  if (!arrived_.BeginAfter(version)) {
    // A worker without work in the last steps may still wait for weights when the run completes.
    return std::make_exception_ptr(Error(stop_completed_ ? ExitCode::kOk : ExitCode::kPeerFailed,
                                         "the server stopped the run: {}", stop_reason_));
  }
  return std::make_exception_ptr(
      Error(ExitCode::kPeerFailed,
            "the server ordered work on W({}), but sends this worker only later weights", version));
}

// Programs ask after a complete run, too.
std::exception_ptr Session::WhyNoAnswer() const {
  if (error_ != nullptr) return error_;
  if (state_ != State::kStopped || (stop_completed_ && !is_lost_)) return nullptr;
  return std::make_exception_ptr(
      Error(ExitCode::kPeerFailed, "the server {}",
            is_lost_ ? "has ended" : "stopped the run: " + stop_reason_));
}

bool Session::LeaveIsDue() { return welcomed_ && !std::exchange(leave_said_, true); }

}  // namespace muster
