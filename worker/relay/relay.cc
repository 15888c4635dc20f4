#include "worker/relay/relay.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/denormals.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/process.h"
#include "common/link/gradient_check.h"
#include "common/link/wire_values.h"

namespace muster {
namespace {

constexpr int kMessagesAtATime = 64;
constexpr int kLongestSleepMs = 100;
constexpr std::chrono::milliseconds kCheckInterval{50};

// Keeps the memory of a tensor until the link has sent it.
Release Holds(std::shared_ptr<const void> memory, Release sent) {
  struct Held {
    std::shared_ptr<const void> memory;
    Release sent;
  };
  const auto call = [](void* hint) {
    const std::unique_ptr<Held> held(static_cast<Held*>(hint));
    held->memory.reset();
    if (held->sent.call != nullptr) held->sent.call(held->sent.hint);
  };
  return {call, new Held{std::move(memory), sent}};
}

size_t BufferOf(const wire::WeightsChunk& weights) {
  return weights.average() ? 2 : static_cast<size_t>(weights.version() % 2);
}

}  // namespace

Relay::Relay(std::unique_ptr<ServerLink> workers, std::unique_ptr<ClientLink> server, Limits limits,
             std::unique_ptr<GpuAdder> adder)
    : limits_(limits),
      adder_(std::move(adder)),
      local_(std::move(workers)),
      outbox_(Release{[](void* bell) { static_cast<const EventFd*>(bell)->Ring(); },
                      const_cast<EventFd*>(&room_bell_)}),
      server_(std::move(server)) {}

void Relay::Run() {
  FlushDenormals();  // as in the server, for the same bits
  for (;;) {
    Sleep();
    for (int i = 0; i < kMessagesAtATime; ++i) {
      std::optional<FromServer> event = server_->Receive();
      if (!event) break;
      FromTheServer(std::move(*event));
    }
    for (int i = 0; i < kMessagesAtATime; ++i) {
      std::optional<FromWorker> event = local_->Receive();
      if (!event) break;
      FromAWorker(std::move(*event));
    }
    if (Clock::now() - checked_at_ > kCheckInterval) CheckLimits();
    SendWaiting();
    local_->Deliver();
  }
}

bool Relay::IsNeeded() const {
  return std::ranges::any_of(workers_, [](const auto& one) { return !one.second.has_finished; });
}

void Relay::CheckLimits() {
  const Clock::time_point now = checked_at_ = Clock::now();
  const Clock::duration suspension = suspensions_.Look(now);
  if (sums_) SendGradients(sums_->TakeLate(now));
  if (IsNeeded()) needed_at_ = now;
  if (now - needed_at_ > limits_.without_workers) {
    throw Error(ExitCode::kOk, "no worker needs this relay any more");
  }
  if (!heard_at_) return;  // the workers have a deadline for Welcome
  heard_at_ = WithoutSuspension(*heard_at_, suspension, now);
  if (IsNeeded() && now - *heard_at_ > limits_.silence) {
    throw Error(ExitCode::kDeadline, "no message from the server for {:.0f} s",
                limits_.silence.count());
  }
}

void Relay::Sleep() {
  if (!local_->PrepareToSleep() || !server_->PrepareToSleep()) return;
  pollfd events[] = {
      {local_->fd(), POLLIN, 0}, {server_->fd(), POLLIN, 0}, {room_bell_.get(), POLLIN, 0}};
  (void)::poll(events, std::size(events), kLongestSleepMs);
  if ((events[2].revents & POLLIN) != 0) room_bell_.Clear();
}

// ---------------------------------------------------------------------------------- to the workers

void Relay::FromTheServer(FromServer event) {
  if (event.kind != FromServer::Kind::kMessage) {
    local_->Deliver();  // such as the reason
    if (!IsNeeded()) throw Error(ExitCode::kOk, "the run is over");
    throw Error(ExitCode::kPeerFailed, event.kind == FromServer::Kind::kLost
                                           ? "the connection to the server ended"
                                           : "the server sent a malformed message");
  }
  heard_at_ = Clock::now();
  const wire::ServerMessage& message = event.message;
  // Weights are for all workers, even if they were sent with a message to one that has ended.
  if (message.has_weights_chunk()) return OnWeights(message, event.payload);
  const uint32_t via = message.via();
  const auto worker = workers_.find(via);
  if (worker == workers_.end()) return;
  std::optional<wire::Address>& address = worker->second.address;
  if (message.has_welcome()) {
    address = message.address();
    OnWelcome(event);
  }
  if (message.has_reset() && address) address->set_incarnation(message.reset().incarnation());
  if (message.has_train() && sums_) sums_->Ordered(via, message.address().rank(), message.train());
  // The server has closed all orders of this worker.
  if (message.has_reset() || message.has_stop()) Close(via);
  ToWorker(message);
}

void Relay::OnWelcome(FromServer& event) {
  wire::Welcome& welcome = *event.message.mutable_welcome();
  const uint32_t via = event.message.via();
  if (!weights_) {
    if (welcome.chunk_end_size() == 0) {
      throw Error(ExitCode::kPeerFailed, "the server's Welcome has no chunks");
    }
    plan_ = {.train_samples = welcome.train_samples(),
             .global_batch = welcome.global_batch(),
             .total_steps = welcome.total_steps(),
             .slices = welcome.slices(),
             .drop_last = welcome.drop_last()};
    if (!plan_.IsSane()) throw Error(ExitCode::kPeerFailed, "the server's Welcome has no steps");
    type_ = welcome.tensor_type();
    chunk_end_.assign(welcome.chunk_end().begin(), welcome.chunk_end().end());
    if (server_->shares_memory()) {
      if (!event.shared) throw Error(ExitCode::kPeerFailed, "the server's Welcome has no memory");
      weights_ = std::move(event.shared->weight_buffers);
      places_.emplace(std::move(event.shared->gradient_buffers),
                      GradientLayoutOf(welcome).OfRelay(), chunk_end_.size());
    } else {
      // The third, for averages, takes no memory until it is used.
      const size_t bytes = SharedArenaFloats(chunk_end_.back()) * sizeof(float);
      weights_ = SharedMemory::Create("muster-weights", 3 * bytes, SharedMemory::Access::kReadWrite,
                                      2 * bytes);
    }
    for (auto& versions : arrived_) versions.assign(chunk_end_.size(), -1);
    local_->ShareWeights(*weights_);
    if (adder_ != nullptr && type_ == wire::FP32) UseGpus(welcome);
    sums_.emplace(welcome.slices(), type_, gpus_ ? &*gpus_ : nullptr);
    if (type_ != wire::FP32) halves_.resize(3 * SharedArenaFloats(chunk_end_.back()));
  }
  local_->ShareGradients(via, GradientLayoutOf(welcome));
  welcome.set_adds_in_gpus(gpus_ && local_->SharesMemory(via));
}

// Takes memory of the GPU before the workers share it out.
void Relay::UseGpus(const wire::Welcome& welcome) {
  size_t largest = 0;
  for (size_t c = 0; c < chunk_end_.size(); ++c) {
    largest = std::max(largest, chunk_end_[c] - (c == 0 ? 0 : chunk_end_[c - 1]));
  }
  try {
    adder_->Reserve(Root(welcome.slices()).level, largest);
    gpus_.emplace(std::move(adder_), chunk_end_);
  } catch (const Error& error) {
    LogWarning("worker.gpu_sums: adding gradients on the host instead: {}", error.what());
    adder_.reset();
  }
}

void Relay::OnWeights(const wire::ServerMessage& message, const Payload& payload) {
  const wire::WeightsChunk& weights = message.weights_chunk();
  if (weights.chunk() >= chunk_end_.size() || weights.version() < 0) {
    throw Error(ExitCode::kPeerFailed, "the server sent chunk {} of W({}), expected one of {}",
                weights.chunk(), weights.version(), chunk_end_.size());
  }
  if (places_) {
    if (!weights.average()) {
      sums_->Forget(weights.version() - 1, weights.chunk());
      places_->Free(weights.chunk(), weights.version());
    }
    return ToWorker(message);
  }
  int64_t& newest = arrived_[BufferOf(weights)][weights.chunk()];
  if (payload.bytes == 0) {  // it came with a message for another worker
    if (newest == weights.version()) ToWorker(message);
    return;
  }
  const std::span<float> floats = WeightsOf(weights);
  const size_t expected = floats.size() * BytesOf(type_);
  if (payload.bytes != expected) {
    throw Error(ExitCode::kPeerFailed, "the server sent {} bytes of chunk {}, expected {}",
                payload.bytes, weights.chunk(), expected);
  }
  if (type_ == wire::FP32) {
    std::memcpy(floats.data(), payload.data, payload.bytes);
  } else {
    std::ranges::copy(payload.halves(), HalvesOf(floats).begin());
    Widen(type_, payload.halves(), floats.data());
  }
  newest = weights.version();
  if (!weights.average()) {
    sums_->Forget(weights.version() - 1, weights.chunk());
    outbox_.DropTensorsBefore(weights.version() - 1);  // sent again, but no longer missing
  }
  ToWorker(message);
}

std::span<float> Relay::WeightsOf(const wire::WeightsChunk& weights) {
  const size_t begin = weights.chunk() == 0 ? 0 : chunk_end_[weights.chunk() - 1];
  const size_t buffer = BufferOf(weights) * SharedArenaFloats(chunk_end_.back());
  return weights_->writable_floats().subspan(buffer + begin, chunk_end_[weights.chunk()] - begin);
}

// The same weights as they travel, for other relays.
std::span<uint16_t> Relay::HalvesOf(std::span<const float> floats) {
  const auto begin = static_cast<size_t>(floats.data() - weights_->floats().data());
  return std::span(halves_).subspan(begin, floats.size());
}

void Relay::ToWorker(const wire::ServerMessage& message) {
  if (!workers_.contains(message.via())) return;
  OutgoingTensor tensor;
  if (message.has_weights_chunk() && !places_) {
    // For relays; workers read it in place.
    const wire::WeightsChunk& weights = message.weights_chunk();
    const std::span<float> floats = WeightsOf(weights);
    tensor = {type_ == wire::FP32 ? std::as_bytes(floats) : std::as_bytes(HalvesOf(floats)),
              UrgencyOf(weights)};
  }
  if (local_->Send(message.via(), message, tensor) == SendResult::kFull) {
    LogWarning("a worker does not read its messages; reporting it as lost");
    Lose(message.via());
  }
}

// ---------------------------------------------------------------------------------- to the server

void Relay::FromAWorker(FromWorker event) {
  const auto via = static_cast<uint32_t>(event.peer);
  if (event.kind == FromWorker::Kind::kRefused) {
    if (!refused_.Count()) return;
    LogWarning("refused a connection from {}: {} ({} so far)", event.refused, event.why_refused,
               refused_.count());
    return;
  }
  if (event.kind == FromWorker::Kind::kLost) return Lose(via);
  if (event.message.has_hello()) workers_.emplace(via, Worker{});
  if (!workers_.contains(via)) return;  // overtaken by the end of its connection
  event.message.set_via(via);
  if (event.message.has_gpu_buffer()) {
    if (gpus_ && local_->SharesMemory(event.peer)) gpus_->Open(via, event.message.gpu_buffer());
    return;
  }
  if (event.message.has_gradient_part() && sums_) {
    if (type_ != wire::FP32 && local_->SharesMemory(event.peer)) Round(event.payload);
    if (const std::string why = Check(event); !why.empty()) {
      if (!dropped_.Count()) return;
      LogWarning("dropped a gradient of rank {}: {} ({} so far)", event.message.address().rank(),
                 why, dropped_.count());
      return;
    }
    return SendGradients(
        sums_->Add({std::move(event.message), std::move(event.payload)}, Clock::now()));
  }
  if (event.message.has_goodbye()) workers_[via].has_finished = true;
  ToServer(std::move(event.message));  // the server drops and counts malformed messages
}

// Rounds a gradient in shared memory to the type of the wire.
void Relay::Round(Payload& payload) const {
  const std::span<const float> floats = payload.floats();
  const auto halves = std::make_shared_for_overwrite<uint16_t[]>(floats.size());
  (void)Narrow(type_, floats, halves.get());  // the server detects infinities
  if (floats.empty()) return;
  payload = {.data = halves.get(), .bytes = floats.size() * sizeof(uint16_t), .owner = halves};
}

// For the server all workers of this relay have one connection, so it cannot check who of them sent
// a gradient.
std::string Relay::Check(const FromWorker& event) const {
  const std::optional<wire::Address>& address = workers_.at(event.message.via()).address;
  const wire::Address& named = event.message.address();
  if (!address || named.job() != address->job() || named.rank() != address->rank() ||
      named.incarnation() != address->incarnation()) {
    return "wrong job, rank or incarnation";
  }
  const PeerId connection = local_->ConnectionOf(event.peer);
  const auto is_behind = [&](uint32_t rank) {
    return std::ranges::any_of(workers_, [&](const auto& other) {
      return other.second.address && other.second.address->rank() == rank &&
             local_->ConnectionOf(other.first) == connection;
    });
  };
  std::string why = CheckGradient(event.message.gradient_part(), named.rank(), plan_, is_behind);
  return why.empty() ? CheckValues(event) : why;
}

std::string Relay::CheckValues(const FromWorker& event) const {
  const wire::GradientPart& part = event.message.gradient_part();
  if (part.chunk() >= chunk_end_.size()) return "an unknown chunk";
  const uint64_t begin = part.chunk() == 0 ? 0 : chunk_end_[part.chunk() - 1];
  const size_t want = part.empty() ? 0 : (chunk_end_[part.chunk()] - begin) * BytesOf(type_);
  if (event.payload.bytes != want) {
    return fmt::format("{} bytes for chunk {}, expected {}", event.payload.bytes, part.chunk(),
                       want);
  }
  if (!part.in_gpu() || (gpus_ && gpus_->Find({event.message, event.payload}) != nullptr))
    return "";
  return "its worker has not said where in the GPU it is";
}

void Relay::Lose(uint32_t via) {
  if (workers_.erase(via) == 0) return;
  wire::WorkerMessage message;
  message.mutable_ended();
  message.set_via(via);
  ToServer(std::move(message));
  Close(via);
  if (gpus_) gpus_->Close(via);
}

void Relay::Close(uint32_t via) {
  if (!sums_) return;
  SendGradients(sums_->Close(via));
}

void Relay::ToServer(wire::WorkerMessage message) {
  const size_t bytes = message.ByteSizeLong();
  outbox_.AddControl(bytes, {std::move(message), {}});
}

void Relay::SendGradients(std::vector<RelayedGradient> gradients) {
  for (RelayedGradient& gradient : gradients) {
    if (gradient.payload.bytes == 0) {
      ToServer(std::move(gradient.message));
      continue;
    }
    if (gpus_) gpus_->Bring(gradient);
    if (places_) {
      if (places_->Put(gradient)) ToServer(std::move(gradient.message));
      continue;
    }
    const Urgency urgency = UrgencyOf(gradient.message.gradient_part());
    const size_t bytes = gradient.payload.bytes;
    outbox_.AddTensor(urgency, bytes, std::move(gradient));
  }
}

void Relay::SendWaiting() {
  if (outbox_.empty()) return;
  outbox_.Send([this](const RelayedGradient& next, Release sent) {
    const Payload& payload = next.payload;
    const std::span<const std::byte> bytes{static_cast<const std::byte*>(payload.data),
                                           payload.bytes};
    if (!bytes.empty()) sent = Holds(payload.owner, sent);
    if (server_->Send(next.message, bytes, sent)) return true;
    if (sent.call != nullptr) sent.call(sent.hint);
    return false;
  });
  (void)server_->Deliver();
}

}  // namespace muster
