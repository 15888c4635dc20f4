#include "worker/client/client.h"

#include <fmt/core.h>
#include <unistd.h>

#include <random>

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

}  // namespace

Client::Client(ClientOptions options) : options_(std::move(options)), process_(RandomNumber()) {
  try {
    Join(Attempt::kFirst);
  } catch (const HandOverFailed& error) {
    if (!MayFallBack()) throw;
    LogWarning("ZeroMQ, since shared memory cannot be used: {}", error.what());
    channel_->Stop();
    // Its end would be the loss of this worker.
    const std::unique_ptr<Channel> local = std::move(channel_);
    error_ = nullptr;
    Join(Attempt::kInsteadOfLocal);
  }
  if (wire_type() != wire::FP32 && options_.link.share_memory) {
    LogInfo(
        "tensors travel in 16 bits ({}), as the server's cluster.wire_dtype says; here it is FP32",
        wire::TensorType_Name(wire_type()));
  }
}

void Client::Join(Attempt attempt) {
  LinkOptions link = options_.link;
  link.token = options_.token;
  if (attempt == Attempt::kInsteadOfLocal) link.share_memory = false;
  channel_ = MakeChannel(options_.connect
                             ? options_.connect(link)
                             : Connect(options_.endpoint, JobOf(options_.token), options_.transport,
                                       std::chrono::duration<double>(options_.start_s), link),
                         *this);
  channel_->Start();
  Send(Hello(attempt));

  std::unique_lock lock(mutex_);
  const auto after = [](Clock::time_point from, double seconds) {
    return from +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  };
  const Clock::time_point begin = Clock::now();
  // The server names missing ranks at its deadline; be a little more patient than it is. With whom
  // the job need not start waits for the start of the others, as long as the server beats.
  Clock::time_point until = after(begin, options_.start_s + 5);
  do {
    const bool answered = channel_->Wait(
        lock, [this] { return welcome_ || error_ != nullptr; }, until);
    ThrowIfFailed();
    if (answered) return;
    if (last_heard_ > begin) until = after(last_heard_, options_.silence_s);
  } while (Clock::now() < until);
  throw Error(ExitCode::kDeadline,
              "no Welcome from the server at {} within {:.0f} s: is it running there, and can "
              "this host reach it?",
              options_.endpoint, std::chrono::duration<double>(until - begin).count());
}

wire::WorkerMessage Client::Hello(Attempt attempt) const {
  wire::WorkerMessage message = NewMessage();
  wire::Hello& hello = *message.mutable_hello();
  hello = options_.hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_token(options_.token);
  hello.set_host(HostName());
  hello.set_pid(::getpid());
  hello.set_process(process_);
  if (options_.rank) hello.set_rank(*options_.rank);
  if (attempt == Attempt::kInsteadOfLocal) hello.set_instead_of_local(true);
  return message;
}

// With AUTO, unless the endpoint is the local link's own: the server is there over ZeroMQ, too.
bool Client::MayFallBack() const {
  return options_.transport == config::Cluster::AUTO && !options_.endpoint.starts_with("local://");
}

Client::~Client() {
  bool goodbye;
  {
    const std::lock_guard lock(mutex_);
    goodbye = stopped_ && error_ == nullptr;
  }
  if (!goodbye) return;
  wire::WorkerMessage message = NewMessage();
  message.mutable_goodbye();
  channel_->Finish(std::move(message));
}

wire::WorkerMessage Client::NewMessage() const {
  wire::WorkerMessage message;
  message.mutable_address()->set_job(JobOf(options_.token));
  message.mutable_address()->set_rank(rank_);
  message.mutable_address()->set_incarnation(incarnation_);
  return message;
}

void Client::ThrowIfFailed() const {
  if (error_ != nullptr) std::rethrow_exception(error_);
}

void Client::ReportReady(const std::string& convolutions) {
  wire::WorkerMessage message = NewMessage();
  wire::Ready& ready = *message.mutable_ready();
  if (!convolutions.empty()) ready.set_convolutions(convolutions);
  Send(std::move(message));
}

void Client::Leave() {
  wire::WorkerMessage message = NewMessage();
  message.mutable_leave();
  Send(std::move(message));
}

Order Client::NextOrder() {
  std::unique_lock lock(mutex_);
  (void)channel_->Wait(lock, [this] { return !orders_.empty() || error_ != nullptr; });
  if (orders_.empty()) ThrowIfFailed();
  return TakeOrder();
}

std::optional<Order> Client::NextUrgentOrder() {
  const std::lock_guard lock(mutex_);
  if (orders_.empty() || !orders_.front().urgent()) return std::nullopt;
  return TakeOrder();
}

Order Client::TakeOrder() {
  Order order = std::move(orders_.front());
  orders_.pop_front();
  if (order.kind == Order::Kind::kFence) fenced_ = false;
  if (options_.guard != nullptr) MarkUnwritten(order);
  return order;
}

void Client::MarkUnwritten(const Order& order) {
  if (order.kind == Order::Kind::kFence) marked_.clear();
  if (order.kind == Order::Kind::kTrain) marked_arenas_.clear();
  for (const WorkLease& lease : order.leases) {
    if (order.kind == Order::Kind::kTrain) {
      marked_arenas_.push_back(lease.arena);
    } else {  // an arena that nobody reads
      const std::span<float> arena = GradientBuffer(lease.arena);
      options_.guard->Fill(arena, 0, arena.size());
    }
  }
}

void Client::MarkUnwritten(int64_t version, size_t chunk) {
  for (const size_t arena : marked_arenas_) {
    std::vector<int64_t>& versions = marked_[arena];
    versions.resize(chunks().size(), -1);
    if (versions[chunk] >= version) continue;
    versions[chunk] = version;
    options_.guard->Fill(GradientBuffer(arena), chunks()[chunk].begin, chunks()[chunk].end);
  }
}

std::span<float> Client::GradientBuffer(size_t arena) { return tensors_->GradientBuffer(arena); }

std::span<const float> Client::Weights(int64_t version) const {
  return tensors_->WeightBuffer(static_cast<int>(version % 2));
}

std::span<const float> Client::Average() const {
  return tensors_->WeightBuffer(TensorStore::kAverageBuffer);
}

bool Client::AwaitChunk(int64_t version, size_t chunk, Wait wait) {
  const bool here = Await(version, chunk, false, wait);
  if (here && options_.guard != nullptr) MarkUnwritten(version, chunk);
  return here;
}

bool Client::AwaitAverage(int64_t version, size_t chunk, Wait wait) {
  return Await(version, chunk, true, wait);
}

bool Client::IsUrgent(Wait wait) const {
  return fenced_ || (wait == Wait::kForUrgent && !orders_.empty() && orders_.front().urgent());
}

bool Client::Await(int64_t version, size_t chunk, bool average, Wait wait) {
  std::unique_lock lock(mutex_);
  const auto arrived = [&] { return !fenced_ && arrived_.Has(version, chunk, average); };
  if (arrived()) return true;
  const trace::Span span("wait", {}, {.step = version, .chunk = static_cast<int32_t>(chunk)});
  const auto never = [&] { return !fenced_ && arrived_.BeginAfter(version); };
  (void)channel_->Wait(lock, [&] {
    return arrived() || never() || IsUrgent(wait) || error_ != nullptr || stopped_;
  });
  if (arrived()) return true;
  ThrowIfFailed();
  if (IsUrgent(wait)) return false;
  if (never()) {
    throw Error(
        ExitCode::kPeerFailed,
        "the server's order is about W({}), and the weights that it sends this worker begin "
        "after that",
        version);
  }
  std::string reason;  // the server said Stop
  for (const Order& order : orders_) {
    if (order.kind == Order::Kind::kStop) reason = order.reason;
  }
  throw Error(ExitCode::kPeerFailed, "the server stopped the run: {}", reason);
}

void Client::ReportLoss(int64_t step, const WorkLease& lease, int64_t slice, int64_t samples,
                        double loss, int64_t correct) {
  if (fenced_) return;
  wire::WorkerMessage message = NewMessage();
  wire::SliceLoss& body = *message.mutable_slice_loss();
  body.set_step(step);
  body.set_slice(static_cast<uint32_t>(slice));
  body.set_samples(samples);
  body.set_loss(loss);
  body.set_correct(correct);
  body.set_lease(lease.id);
  Send(std::move(message), When::kSoon);  // nothing can be done without gradients
}

wire::WorkerMessage Client::PartMessage(int64_t step, const WorkLease& lease, size_t chunk) const {
  wire::WorkerMessage message = NewMessage();
  wire::GradientPart& body = *message.mutable_gradient_part();
  body.set_step(step);
  body.set_chunk(static_cast<uint32_t>(chunk));
  *body.mutable_subtree() = SubtreeOf(lease.node);
  body.set_lease(lease.id);
  body.set_arena(static_cast<uint32_t>(lease.arena));
  return message;
}

void Client::PushChunk(int64_t step, const WorkLease& lease, size_t chunk) {
  if (fenced_) return;
  const trace::Span span("push", {}, {.step = step, .chunk = static_cast<int32_t>(chunk)});
  Outgoing outgoing{.message = PartMessage(step, lease, chunk)};
  const ChunkRange& range = chunks()[chunk];
  if (options_.guard != nullptr) {
    const Range slices = Covers(lease.node, plan().slices);
    options_.guard->Check(GradientBuffer(lease.arena), range.begin, range.end,
                          fmt::format("slices {} to {} of step {}, about to be pushed",
                                      slices.begin, slices.end - 1, step));
  }
  outgoing.tensor = GradientBuffer(lease.arena).subspan(range.begin, range.size());
  outgoing.urgency = UrgencyOf(outgoing.message.gradient_part());
  channel_->Send(std::move(outgoing), When::kNow);
}

void Client::PushEmpty(int64_t step, const WorkLease& lease, size_t chunk) {
  if (fenced_) return;
  wire::WorkerMessage message = PartMessage(step, lease, chunk);
  message.mutable_gradient_part()->set_empty(true);
  Send(std::move(message), chunk + 1 < chunks().size() ? When::kSoon : When::kNow);
}

bool Client::ReportEvaluated(const wire::EvaluatedBlock& block) {
  wire::WorkerMessage message = NewMessage();
  *message.mutable_evaluated_block() = block;
  // After the address was read: Fence sets this first. No lease tells the server that a block is
  // of the incarnation before.
  if (fenced_) return false;
  Send(std::move(message));
  const std::lock_guard lock(mutex_);
  return !stopped_ && error_ == nullptr;
}

void Client::ReportTimes(const wire::StepTimes& times) {
  wire::WorkerMessage message = NewMessage();
  *message.mutable_step_times() = times;
  Send(std::move(message), When::kSoon);
}

void Client::ReportFailure(const std::string& message, ExitCode code) {
  wire::WorkerMessage failure = NewMessage();
  failure.mutable_failure()->set_message(message);
  failure.mutable_failure()->set_exit_code(static_cast<int>(code));
  {
    const std::lock_guard lock(mutex_);
    if (error_ != nullptr) return;  // nobody is listening
    stopped_ = false;               // no Goodbye follows
  }
  channel_->Finish(std::move(failure));
}

}  // namespace muster
