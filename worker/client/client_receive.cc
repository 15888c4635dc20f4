// What comes from the server, and the communication thread.
#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "common/link/protocol.h"
#include "common/trace/trace.h"
#include "worker/client/client.h"

namespace muster {
namespace {

constexpr std::chrono::milliseconds kFlushLimit{2000};

}  // namespace

void Client::Communicate(std::stop_token stop) {
  trace::NameThread("communication");
  Clock::time_point next_beat = Clock::now() + kBeatInterval;
  try {
    while (!stop.stop_requested()) {
      bool joined;
      {
        const std::lock_guard lock(mutex_);
        joined = welcome_;
      }
      // Over the local link the compute thread receives, from Welcome on.
      const bool receives = !any_thread_ || !joined;
      if (!receives || link_->PrepareToSleep()) {
        pollfd fds[] = {{bell_.get(), POLLIN, 0}, {link_->fd(), POLLIN, 0}};
        const auto until_beat =
            std::chrono::ceil<std::chrono::milliseconds>(next_beat - Clock::now());
        const int limit = std::max(0, static_cast<int>(until_beat.count()));
        (void)::poll(fds, receives ? 2 : 1, receives ? std::min(100, limit) : limit);
      }
      bell_.Clear();
      SendQueued();
      if (receives) {
        const std::lock_guard receiving(receiving_);
        Receive(std::chrono::milliseconds(0));
      }
      if (Clock::now() < next_beat) continue;
      next_beat = Clock::now() + kBeatInterval;
      Beat();
      if (!receives) {
        const std::unique_lock receiving(receiving_, std::try_to_lock);
        if (receiving) Receive(std::chrono::milliseconds(0));  // else the compute thread is at it
      }
      CheckSilence();
    }
    if (flush_) Drain();
  } catch (const HandOverFailed& error) {
    hand_over_failed_ = true;  // nobody looks before Fail
    Fail(error);
  } catch (const Error& error) {
    Fail(error);
  } catch (const std::exception& error) {
    Fail(Error(ExitCode::kFailure, "communication: {}", error.what()));
  }
}

void Client::Beat() {
  wire::WorkerMessage message = NewMessage();
  message.mutable_beat();
  (void)link_->Send(message, {});
  (void)link_->Deliver();
}

void Client::Receive(std::chrono::milliseconds limit) {
  if (limit.count() > 0 && !spin_.Spin([this] { return link_->Pending(); })) {
    pollfd fd{link_->fd(), POLLIN, 0};
    if (link_->PrepareToSleep()) (void)::poll(&fd, 1, static_cast<int>(limit.count()));
    spin_.Slept();
  }
  // A few at a time, so that gradients do not wait behind a flood of weights.
  for (int i = 0; i < 16; ++i) {
    const std::optional<FromServer> event = link_->Receive();
    if (!event) break;
    Handle(*event);
    // What came in one packet is handled; looking for another costs a system call.
    if (any_thread_ && !link_->Pending()) break;
  }
}

// What says something goes first, then the lowest layer's gradients: the next forward pass waits
// for its weights.
void Client::SendQueued() {
  {
    const std::lock_guard lock(mutex_);
    for (Outgoing& outgoing : outgoing_) {
      if (outgoing.tensor.empty()) {
        words_.push_back(std::move(outgoing));
      } else {
        const wire::GradientPart& part = outgoing.message.gradient_part();
        tensors_.emplace(std::pair(part.step(), part.chunk()), std::move(outgoing));
      }
    }
    outgoing_.clear();
  }
  if (words_.empty() && tensors_.empty()) return;
  for (; !words_.empty(); words_.pop_front()) (void)Send(words_.front());
  while (!tensors_.empty() && Send(tensors_.begin()->second)) tensors_.erase(tensors_.begin());
  (void)link_->Deliver();
  const std::lock_guard lock(mutex_);
  handed_over_ = Clock::now();
}

bool Client::Send(const Outgoing& outgoing) {
  std::span<const std::byte> bytes = std::as_bytes(outgoing.tensor);
  Release release;
  if (!bytes.empty() && !any_thread_) {
    const size_t count = outgoing.tensor.size() * BytesOf(wire_type_);
    if (!window_->Take(count)) return false;
    if (wire_buffers_) {
      WireBuffers::Buffer* const buffer = wire_buffers_->Take();
      if (buffer == nullptr) {
        window_->GiveBack(count);
        return false;
      }
      (void)Narrow(wire_type_, outgoing.tensor,
                   buffer->values().data());  // the server finds infinities
      bytes = std::as_bytes(buffer->values().first(outgoing.tensor.size()));
      release = {[](void* hint) { static_cast<WireBuffers::Buffer*>(hint)->GiveBack(); }, buffer};
    }
    release = window_->GivesBack(count, release);
  }
  if (!link_->Send(outgoing.message, bytes, release)) {
    throw Error(ExitCode::kPeerFailed, "the server does not take any more messages");
  }
  return true;
}

void Client::Drain() {
  SendQueued();
  tensors_.clear();  // no server that said Stop waits for gradients
  link_->Flush(kFlushLimit);
}

void Client::CheckSilence() {
  const std::lock_guard lock(mutex_);
  last_heard_ = WithoutGap(last_heard_, own_gap_.Look());
  const double silent = std::chrono::duration<double>(Clock::now() - last_heard_).count();
  if (!welcome_ || silent <= options_.silence_s || error_) return;
  error_ = Error(ExitCode::kDeadline,
                 "the server has been silent for {:.0f} s (deadlines.silence_s): it is stopped, "
                 "stuck, or cut off from this host",
                 silent);
  changed_.notify_all();
}

void Client::Handle(const FromServer& event) {
  // The copy into the plane is made without the lock: nobody reads the chunk before it is marked
  // as arrived, and only this thread marks it.
  const bool is_weights =
      event.kind == FromServer::Kind::kMessage && event.message.has_weights_chunk();
  const bool stored = is_weights && StoreWeights(event.message.weights_chunk(), event.payload);
  const std::lock_guard lock(mutex_);
  if (event.kind == FromServer::Kind::kLost) {
    if (!stopped_ && !error_) {
      error_ = Error(ExitCode::kPeerFailed, "the connection to the server ended");
    }
    changed_.notify_all();
    return;
  }
  last_heard_ = Clock::now();
  const wire::ServerMessage& message = event.message;
  const bool for_me = message.address().job() == JobOf(options_.token) &&
                      message.address().rank() == options_.rank &&
                      message.address().incarnation() == options_.incarnation;
  if (event.kind == FromServer::Kind::kMessage && message.has_refused()) {
    error_ =
        Error(ExitCode::kRefused, "the server refused this worker: {}", message.refused().reason());
  } else if (event.kind == FromServer::Kind::kMalformed || !for_me) {
    error_ =
        Error(ExitCode::kPeerFailed,
              "the server sent a message that is not of this protocol, or not for this worker");
  } else if (message.has_welcome()) {
    HandleWelcome(message.welcome());
  } else if (is_weights) {
    MarkArrived(message.weights_chunk(), stored, event.payload.bytes);
  } else if (message.has_train()) {
    orders_.push_back({.kind = Order::Kind::kTrain,
                       .version = message.train().step(),
                       .samples = message.train().samples()});
  } else if (message.has_evaluate()) {
    orders_.push_back({.kind = Order::Kind::kEvaluate,
                       .version = message.evaluate().version(),
                       .block_size = message.evaluate().block_size(),
                       .blocks = {message.evaluate().block_begin(), message.evaluate().block_end()},
                       .average = message.evaluate().average(),
                       .predictions = message.evaluate().predictions()});
  } else if (message.has_stop()) {
    stopped_ = true;
    if (!welcome_) {
      error_ =
          Error(ExitCode::kPeerFailed, "the server stopped the run: {}", message.stop().reason());
    }
    orders_.push_back({.kind = Order::Kind::kStop,
                       .completed = message.stop().completed(),
                       .reason = message.stop().reason()});
  }
  changed_.notify_all();
}

void Client::HandleWelcome(const wire::Welcome& welcome) {
  const bool sane = !welcome_ && welcome.chunk_end_size() > 0 && welcome.train_samples() > 0 &&
                    welcome.global_batch() > 0 && welcome.slices() > 0 &&
                    welcome.slice_begin() <= welcome.slice_end() &&
                    welcome.slice_end() <= welcome.slices() &&
                    welcome.chunk_end(welcome.chunk_end_size() - 1) == options_.arena_floats &&
                    std::is_sorted(welcome.chunk_end().begin(), welcome.chunk_end().end());
  if (!sane) {
    error_ = Error(ExitCode::kPeerFailed,
                   "the server's Welcome does not fit this worker's arena of {} floats",
                   options_.arena_floats);
    return;
  }
  plan_ = {.train_samples = welcome.train_samples(),
           .global_batch = welcome.global_batch(),
           .total_steps = welcome.total_steps(),
           .slices = welcome.slices()};
  first_step_ = welcome.first_step();
  slices_ = {welcome.slice_begin(), welcome.slice_end()};
  parts_ = Decompose(slices_, plan_.slices);
  size_t begin = 0;
  for (const uint64_t end : welcome.chunk_end()) {
    chunks_.push_back({begin, end});
    begin = end;
  }
  arrived_.assign(chunks_.size(), first_step_ - 1);
  average_arrived_.assign(chunks_.size(), first_step_);
  wire_type_ = welcome.tensor_type();
  if (wire_type_ != wire::FP32) {
    size_t largest = 0;
    for (const ChunkRange& chunk : chunks_) largest = std::max(largest, chunk.end - chunk.begin);
    wire_buffers_.emplace(largest, bell_);
  }
  link_->AllocateTensors(options_.arena_floats, parts_.size(), wire_type_);
  welcome_ = true;
}

bool Client::StoreWeights(const wire::WeightsChunk& weights, const Payload& payload) {
  if (weights.chunk() >= arrived_.size()) return false;
  // Weights come version by version; an average only where an evaluation wants it, and after its
  // weights.
  const int64_t arrived = arrived_[weights.chunk()];
  const bool next = weights.average() ? weights.version() == arrived &&
                                            weights.version() > average_arrived_[weights.chunk()]
                                      : weights.version() == arrived + 1;
  if (!next) return false;
  const trace::Span span(
      "arrive", {}, {.step = weights.version(), .chunk = static_cast<int32_t>(weights.chunk())});
  const ChunkRange& range = chunks_[weights.chunk()];
  if (payload.bytes != (range.end - range.begin) * BytesOf(wire_type_)) return false;
  const int plane =
      weights.average() ? ClientLink::kAveragePlane : static_cast<int>(weights.version() % 2);
  link_->StoreWeights(plane, range.begin, payload);
  return true;
}

void Client::MarkArrived(const wire::WeightsChunk& weights, bool stored, size_t bytes) {
  if (!stored) {
    error_ = Error(ExitCode::kPeerFailed,
                   "the server sent chunk {} of {}version {} with {} bytes, which is not the one "
                   "that comes next",
                   weights.chunk(), weights.average() ? "the average of " : "", weights.version(),
                   bytes);
    return;
  }
  (weights.average() ? average_arrived_ : arrived_)[weights.chunk()] = weights.version();
}

}  // namespace muster
