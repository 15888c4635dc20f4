#include "worker/client/client.h"

#include <fmt/core.h>
#include <unistd.h>

#include <random>
#include <utility>

#include "common/base/log.h"
#include "common/base/process.h"
#include "common/link/protocol.h"
#include "common/link/wire_values.h"
#include "common/trace/trace.h"
#include "common/transport/transport.h"

namespace muster {
namespace {

uint64_t RandomNumber() {
  std::random_device random;
  return (uint64_t{random()} << 32 | random()) | 1;  // not 0
}

// Delay before a worker whose rank is taken repeats its Hello.
constexpr std::chrono::seconds kAskAgain{1};

std::unique_ptr<Channel> Connect(const ClientOptions& options, LinkOptions link,
                                 Channel::Owner& owner) {
  if (options.make_channel) return options.make_channel(owner);
  link.token = options.token;
  return MakeChannel(
      options.connect ? options.connect(link)
                      : muster::Connect(options.endpoint, JobOf(options.token), options.transport,
                                        std::chrono::duration<double>(options.start_s), link),
      owner);
}

wire::Hello Hello(const ClientOptions& options, uint64_t process) {
  wire::Hello hello = options.hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_token(options.token);
  hello.set_host(HostName());
  if (!hello.has_pid()) hello.set_pid(::getpid());
  hello.set_process(process);
  if (options.rank) hello.set_rank(*options.rank);
  return hello;
}

void ThrowIfFailed(const Session& session) {
  if (session.error() != nullptr) std::rethrow_exception(session.error());
}

Order TakeOrder(Session& session, std::optional<GuardedGradients>& guard) {
  Order order = session.TakeOrder();
  if (guard) guard->Begin(order);
  return order;
}

wire::GradientPart Part(int64_t step, const OrderPart& part, size_t chunk) {
  wire::GradientPart body;
  body.set_step(step);
  body.set_chunk(static_cast<uint32_t>(chunk));
  *body.mutable_subtree() = SubtreeOf(part.node);
  body.set_order(part.order);
  body.set_buffer(static_cast<uint32_t>(part.buffer));
  return body;
}

wire::InitialValues Initial(const wire::InitialWanted& wanted, std::span<const float> all) {
  if (wanted.begin() > all.size() || wanted.floats() > all.size() - wanted.begin()) {
    throw Error(ExitCode::kPeerFailed,
                "the server asked for the initial weights {} to {}, but this worker has {}",
                wanted.begin(), wanted.begin() + wanted.floats(), all.size());
  }
  const auto bytes = std::as_bytes(all.subspan(wanted.begin(), wanted.floats()));
  wire::InitialValues values;
  values.set_begin(wanted.begin());
  values.set_values(bytes.data(), bytes.size());
  return values;
}

// Uses the shared memory that arrived with Welcome, if there is any.
std::unique_ptr<TensorStore> MakeTensors(FromServer& event, WireType wire_type) {
  const GradientLayout layout = GradientLayoutOf(event.message.welcome());
  return event.shared ? MakeSharedTensors(std::move(*event.shared), layout)
                      : MakeOwnTensors(layout, wire_type);
}

// Copies weights into their buffer. Returns false if they are incomplete.
bool Store(const wire::WeightsChunk& weights, const Payload& payload, const ChunkRange& range,
           TensorStore& tensors) {
  const trace::Span span(
      "arrive", {}, {.step = weights.version(), .chunk = static_cast<int32_t>(weights.chunk())});
  const int buffer =
      weights.average() ? TensorStore::kAverageBuffer : static_cast<int>(weights.version() % 2);
  return tensors.Store(buffer, {range.begin, range.size()}, payload);
}

}  // namespace

Client::Client(ClientOptions options)
    : options_(std::move(options)),
      process_(RandomNumber()),
      session_({.endpoint = options_.endpoint,
                .job = JobOf(options_.token),
                .arena_floats = options_.arena_floats,
                .start_s = options_.start_s,
                .silence_s = options_.silence_s},
               Clock::now()) {
  try {
    Join(Attempt::kFirst);
  } catch (const HandOverFailed& error) {
    // AUTO allows a fallback, unless the endpoint exists only for the local link.
    const bool may_fall_back =
        options_.transport == config::Cluster::AUTO && !options_.endpoint.starts_with("local://");
    if (!may_fall_back) throw;
    LogWarning("falling back to ZeroMQ: shared memory unavailable ({})", error.what());
    channel_->Stop();
    // Keeps the local connection open, because the server would treat its end as the loss of the
    // worker.
    const std::unique_ptr<Channel> local = std::move(channel_);
    Join(Attempt::kInsteadOfLocal);
  }
  if (terms().wire_type != wire::FP32 && options_.link.share_memory) {
    LogInfo("the server's cluster.wire_dtype overrides FP32: tensors are sent as {} (16 bits)",
            wire::TensorType_Name(terms().wire_type));
  }
}

void Client::Join(Attempt attempt) {
  LinkOptions link = options_.link;
  if (attempt == Attempt::kInsteadOfLocal) link.share_memory = false;
  channel_ = Connect(options_, std::move(link), *this);
  session_.BeginJoin(Clock::now());  // no channel thread runs yet
  channel_->Start();
  wire::WorkerMessage hello = NewMessage();
  *hello.mutable_hello() = Hello(options_, process_);
  if (attempt == Attempt::kInsteadOfLocal) hello.mutable_hello()->set_instead_of_local(true);
  Send(hello);
  std::unique_lock lock(mutex_);
  bool asks_again = false;
  while (!session_.welcomed()) {
    (void)channel_->Wait(
        lock,
        [this] {
          return session_.state() != Session::State::kJoining || session_.error() ||
                 initial_wanted_;
        },
        session_.JoinBy());
    session_.CheckJoin(Clock::now());
    ThrowIfFailed(session_);
    if (const auto wanted = std::exchange(initial_wanted_, std::nullopt)) {
      session_.BeginJoin(Clock::now());  // the server is alive, and a large model takes a while
      wire::WorkerMessage values = NewMessage();
      *values.mutable_initial_values() = Initial(*wanted, options_.initial);
      lock.unlock();
      Send(std::move(values));
      lock.lock();
      continue;
    }
    if (session_.state() != Session::State::kRankTaken) continue;
    const std::string why = session_.AskAgain();
    if (!std::exchange(asks_again, true)) LogInfo("{}", why);
    (void)channel_->Wait(
        lock, [this] { return session_.error() != nullptr; }, Clock::now() + kAskAgain);
    lock.unlock();
    Send(hello);
    lock.lock();
  }
}

Client::~Client() {
  bool goodbye;
  {
    const std::lock_guard lock(mutex_);
    goodbye = session_.state() == Session::State::kStopped && !session_.error();
  }
  if (!goodbye) return;
  wire::WorkerMessage message = NewMessage();
  message.mutable_goodbye();
  channel_->Finish(std::move(message));
}

wire::WorkerMessage Client::NewMessage() const {
  wire::WorkerMessage message;
  *message.mutable_address() = session_.address();
  return message;
}

void Client::ReportReady(const std::string& convolutions) {
  wire::WorkerMessage message = NewMessage();
  wire::Ready& ready = *message.mutable_ready();
  if (!convolutions.empty()) ready.set_convolutions(convolutions);
  Send(std::move(message));
}

void Client::Leave() { wants_to_leave_ = true; }

Order Client::NextOrder() {
  std::unique_lock lock(mutex_);
  (void)channel_->Wait(lock,
                       [this] { return session_.NextOrder() != nullptr || session_.error(); });
  if (session_.NextOrder() == nullptr) ThrowIfFailed(session_);
  return TakeOrder(session_, guard_);
}

std::optional<Order> Client::NextUrgentOrder() {
  channel_->Poll();
  const std::lock_guard lock(mutex_);
  const Order* const next = session_.NextOrder();
  if (next == nullptr || !next->urgent()) return std::nullopt;
  return TakeOrder(session_, guard_);
}

std::span<const float> Client::Weights(int64_t version) const {
  return tensors_->WeightBuffer(static_cast<int>(version % 2));
}

std::span<const float> Client::Average() const {
  return tensors_->WeightBuffer(TensorStore::kAverageBuffer);
}

bool Client::AwaitChunk(int64_t version, size_t chunk, Wait wait, Of of) {
  using Arrival = Session::Arrival;
  std::unique_lock lock(mutex_);
  Arrival arrival = session_.Look(version, chunk, of, wait);
  if (arrival == Arrival::kComing) {
    const trace::Span span("wait", {}, {.step = version, .chunk = static_cast<int32_t>(chunk)});
    const auto has_come = [&] {
      arrival = session_.Look(version, chunk, of, wait);
      return arrival != Arrival::kComing;
    };
    (void)channel_->Wait(lock, has_come);
  }
  if (arrival == Arrival::kNever) std::rethrow_exception(session_.WhyNever(version));
  if (arrival != Arrival::kHere) return false;
  lock.unlock();
  if (guard_ && of == Of::kWeights) guard_->Mark(version, chunk);
  return true;
}

void Client::ReportLoss(int64_t step, const OrderPart& part, int64_t slice, int64_t samples,
                        double loss, int64_t correct, const OfProgram& program) {
  if (session_.reset_pending()) return;
  wire::WorkerMessage message = NewMessage();
  wire::SliceLoss& body = *message.mutable_slice_loss();
  body.set_step(step);
  body.set_slice(static_cast<uint32_t>(slice));
  body.set_samples(samples);
  body.set_loss(loss);
  body.set_correct(correct);
  if (program.learning_rate) body.set_learning_rate(*program.learning_rate);
  if (program.weight) body.set_weight(*program.weight);
  body.set_order(part.order);
  *body.mutable_scalar() = program.scalars;
  Send(std::move(message), When::kSoon);  // the server needs the loss no earlier than the gradients
}

void Client::ShareGpuBuffer(size_t buffer, const std::string& handle) {
  wire::WorkerMessage message = NewMessage();
  message.mutable_gpu_buffer()->set_buffer(static_cast<uint32_t>(buffer));
  message.mutable_gpu_buffer()->set_handle(handle);
  Send(std::move(message));
}

void Client::PushChunk(int64_t step, const OrderPart& part, size_t chunk, bool in_gpu) {
  if (session_.reset_pending()) return;
  const trace::Span span("push", {}, {.step = step, .chunk = static_cast<int32_t>(chunk)});
  Outgoing outgoing{.message = NewMessage()};
  *outgoing.message.mutable_gradient_part() = Part(step, part, chunk);
  if (in_gpu) outgoing.message.mutable_gradient_part()->set_in_gpu(true);
  const ChunkRange& range = chunks()[chunk];
  if (guard_) {
    const Range slices = Covers(part.node, plan().slices);
    guard_->Check(part.buffer, chunk,
                  fmt::format("slices {} to {} of step {}, before the push", slices.begin,
                              slices.end - 1, step));
  }
  outgoing.tensor = GradientBuffer(part.buffer).subspan(range.begin, range.size());
  outgoing.urgency = UrgencyOf(outgoing.message.gradient_part());
  channel_->Send(std::move(outgoing), When::kNow);
}

void Client::PushEmpty(int64_t step, const OrderPart& part, size_t chunk) {
  if (session_.reset_pending()) return;
  wire::WorkerMessage message = NewMessage();
  *message.mutable_gradient_part() = Part(step, part, chunk);
  message.mutable_gradient_part()->set_empty(true);
  Send(std::move(message), chunk + 1 < chunks().size() ? When::kSoon : When::kNow);
}

bool Client::ReportEvaluated(const wire::EvaluatedBlock& block) {
  wire::WorkerMessage message = NewMessage();
  *message.mutable_evaluated_block() = block;
  // Checked after NewMessage has read the address, because Reset sets this flag before the address
  // changes. Otherwise the server could not detect that a block belongs to the former incarnation.
  if (session_.reset_pending()) return false;
  Send(std::move(message));
  const std::lock_guard lock(mutex_);
  return session_.state() != Session::State::kStopped && !session_.error();
}

void Client::ReportTimes(const wire::StepTimes& times) {
  wire::WorkerMessage message = NewMessage();
  *message.mutable_step_times() = times;
  Send(std::move(message), When::kSoon);
}

void Client::Ask(const std::string& key, int64_t step, bool may_compute) {
  wire::WorkerMessage message = NewMessage();
  message.mutable_ask()->set_key(key);
  message.mutable_ask()->set_step(step);
  message.mutable_ask()->set_may_compute(may_compute);
  Send(std::move(message));
}

std::optional<wire::Answer> Client::AwaitAnswer(std::chrono::milliseconds patience) {
  std::optional<wire::Answer> answer;
  std::exception_ptr why;
  const auto has_come = [&] {
    if (!answer) answer = session_.TakeAnswer();
    why = session_.WhyNoAnswer();
    return answer || why;
  };
  std::unique_lock lock(mutex_);
  (void)channel_->Wait(lock, has_come, Clock::now() + patience);
  if (!answer && why) std::rethrow_exception(why);
  return answer;
}

void Client::Tell(const std::string& key, int64_t step, const std::string& value) {
  wire::WorkerMessage message = NewMessage();
  message.mutable_tell()->set_key(key);
  message.mutable_tell()->set_step(step);
  message.mutable_tell()->set_value(value);
  Send(std::move(message));
}

void Client::ReportFailure(const std::string& message, ExitCode code) {
  wire::WorkerMessage failure = NewMessage();
  failure.mutable_failure()->set_message(message);
  failure.mutable_failure()->set_exit_code(static_cast<int>(code));
  {
    const std::lock_guard lock(mutex_);
    if (session_.error() != nullptr) return;                                 // no server to send to
    session_.SetError(std::make_exception_ptr(Error(code, "{}", message)));  // prevents Goodbye
  }
  channel_->Finish(std::move(failure));
}

// ---------------------------------------------------------------------------------- the channel

void Client::Fail(std::exception_ptr why) {
  const std::lock_guard lock(mutex_);
  session_.SetError(std::move(why));
}

wire::WorkerMessage Client::Heartbeat() {
  const bool wants_to_leave = wants_to_leave_ || (options_.leave != nullptr && *options_.leave);
  const std::lock_guard lock(mutex_);
  // read only once: a later value could include another suspension
  const Clock::time_point now = Clock::now();
  session_.CheckSilence(now, suspensions_.Look(now));
  wire::WorkerMessage message = NewMessage();
  if (wants_to_leave && session_.LeaveIsDue()) {
    message.mutable_leave();
  } else {
    message.mutable_heartbeat();
  }
  return message;
}

void Client::Handle(FromServer&& event) {
  // Copies into the weight buffer without the lock: no thread reads the chunk before it is marked
  // as arrived, and only the receiving thread marks it.
  const bool is_weights =
      event.kind == FromServer::Kind::kMessage && event.message.has_weights_chunk();
  const wire::WeightsChunk& weights = event.message.weights_chunk();
  const bool stored = is_weights && session_.IsNextWeights(weights) &&
                      Store(weights, event.payload, chunks()[weights.chunk()], *tensors_);
  const bool is_welcome = event.kind == FromServer::Kind::kMessage && event.message.has_welcome();
  if (is_welcome && channel_->link().shares_memory() && !event.shared) {
    throw HandOverFailed("the server's Welcome has no shared memory; see the server's log");
  }
  const std::lock_guard lock(mutex_);
  if (event.kind == FromServer::Kind::kMessage && event.message.has_initial_wanted())
    initial_wanted_ = event.message.initial_wanted();
  session_.Handle(event, stored, Clock::now());
  if (!is_welcome || session_.error() || tensors_ != nullptr) return;
  try {
    channel_->SetWireType(terms().wire_type, terms().LargestChunk());
    tensors_ = MakeTensors(event, terms().wire_type);
    if (options_.guard == nullptr) return;
    guard_.emplace(*options_.guard, chunks(),
                   [this](size_t buffer) { return GradientBuffer(buffer); });
  } catch (...) {  // under the lock, so that no thread takes the session for welcomed
    session_.SetError(std::current_exception());
    throw;
  }
}

}  // namespace muster
