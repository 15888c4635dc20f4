#include "worker/client/client.h"

#include <poll.h>

#include <array>

#include "common/base/log.h"
#include "common/link/protocol.h"
#include "common/trace/trace.h"
#include "common/transport/transport.h"

namespace muster {
Client::Client(ClientOptions options) : options_(std::move(options)) {
  const auto wake = [](void* client) { static_cast<Client*>(client)->bell_.Ring(); };
  window_ = std::make_shared<SendWindow>(Release{wake, this});
  std::unique_ptr<ClientLink> local;  // its end would be the loss of this worker
  std::optional<Error> error;
  try {
    error = Join(Attempt::kFirst);
    if (error && MayFallBack()) {
      LogWarning("ZeroMQ, since shared memory cannot be used: {}", error->what());
      thread_ = {};
      local = std::move(link_);
      error_.reset();
      error = Join(Attempt::kInsteadOfLocal);
    }
  } catch (const Error& failed) {
    error = failed;
  }
  if (!error) {
    if (wire_type_ != wire::FP32 && options_.link.share_memory) {
      LogInfo(
          "tensors travel in 16 bits ({}), as the server's cluster.wire_dtype says; here it "
          "is FP32",
          wire::TensorType_Name(wire_type_));
    }
    return;
  }
  throw *error;
}

std::optional<Error> Client::Join(Attempt attempt) {
  LinkOptions link = options_.link;
  link.token = options_.token;
  if (attempt == Attempt::kInsteadOfLocal) link.share_memory = false;
  link_ = Connect(options_.endpoint, JobOf(options_.token), options_.transport,
                  std::chrono::duration<double>(options_.start_s), link);
  any_thread_ = link_->any_thread();
  Queue(Hello(attempt));
  thread_ = std::jthread([this](std::stop_token stop) { Communicate(stop); });

  std::unique_lock lock(mutex_);
  // The server names missing ranks at its deadline; be a little more patient than it is.
  const auto limit = std::chrono::duration<double>(options_.start_s + 5);
  if (changed_.wait_for(lock, limit, [this] { return welcome_ || error_; })) return error_;
  return Error(ExitCode::kDeadline,
               "no Welcome from the server at {} within {:.0f} s: is it running there, and can "
               "this host reach it?",
               options_.endpoint, limit.count());
}

wire::WorkerMessage Client::Hello(Attempt attempt) const {
  wire::WorkerMessage message = NewMessage();
  wire::Hello& hello = *message.mutable_hello();
  hello = options_.hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_token(options_.token);
  std::array<char, 256> host{};
  (void)::gethostname(host.data(), host.size() - 1);
  hello.set_host(host.data());
  hello.set_pid(::getpid());
  if (attempt == Attempt::kInsteadOfLocal) hello.set_instead_of_local(true);
  return message;
}

// With AUTO, unless the endpoint is the local link's own: the server is there over ZeroMQ, too.
bool Client::MayFallBack() const {
  return hand_over_failed_ && options_.transport == config::Cluster::AUTO &&
         !options_.endpoint.starts_with("local://");
}

Client::~Client() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      if (stopped_ && !error_) {
        wire::WorkerMessage message = NewMessage();
        message.mutable_goodbye();
        outgoing_.push_back({std::move(message), {}});
        flush_ = true;
      }
    }
    thread_.request_stop();
    bell_.Ring();
    thread_.join();
  }
}

wire::WorkerMessage Client::NewMessage() const {
  wire::WorkerMessage message;
  message.mutable_address()->set_job(JobOf(options_.token));
  message.mutable_address()->set_rank(options_.rank);
  message.mutable_address()->set_incarnation(options_.incarnation);
  return message;
}

void Client::Queue(Outgoing outgoing, Urgency urgency) {
  if (any_thread_) {
    (void)link_->Send(outgoing.message, std::as_bytes(outgoing.tensor));
    if (urgency == Urgency::kSoon) return;
    // A server that is gone is noticed when its end of file is read, after its last words.
    (void)link_->Deliver();
    const std::lock_guard lock(mutex_);
    handed_over_ = Clock::now();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    outgoing_.push_back(std::move(outgoing));
  }
  bell_.Ring();
}

void Client::Fail(Error error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
  changed_.notify_all();
}

void Client::ThrowIfFailed() const {
  if (error_) throw *error_;
}

template <typename Condition>
void Client::ReceiveHere(std::chrono::milliseconds limit, const Condition& satisfied) {
  const std::lock_guard receiving(receiving_);
  {
    const std::lock_guard lock(mutex_);
    if (satisfied()) return;  // the other thread received it
  }
  Receive(limit);
}

template <typename Condition>
void Client::Wait(std::unique_lock<std::mutex>& lock, const Condition& condition) {
  if (!any_thread_) return changed_.wait(lock, condition);
  while (!condition()) {
    lock.unlock();
    (void)link_->Deliver();
    ReceiveHere(kBeatInterval, condition);
    CheckSilence();
    lock.lock();
  }
}

void Client::ReportReady() {
  wire::WorkerMessage message = NewMessage();
  message.mutable_ready();
  Queue(std::move(message));
}

Order Client::NextOrder() {
  std::unique_lock lock(mutex_);
  Wait(lock, [this] { return !orders_.empty() || error_; });
  if (orders_.empty()) ThrowIfFailed();
  Order order = std::move(orders_.front());
  orders_.pop_front();
  return order;
}

std::span<float> Client::Slot(size_t part) { return link_->Slot(part); }

std::span<const float> Client::Weights(int64_t version) const {
  return link_->Plane(static_cast<int>(version % 2));
}

std::span<const float> Client::Average() const { return link_->Plane(ClientLink::kAveragePlane); }

void Client::AwaitChunk(int64_t version, size_t chunk) { AwaitVersion(arrived_, version, chunk); }

void Client::AwaitAverage(int64_t version, size_t chunk) {
  AwaitVersion(average_arrived_, version, chunk);
}

void Client::AwaitVersion(const std::vector<int64_t>& arrived, int64_t version, size_t chunk) {
  std::unique_lock lock(mutex_);
  if (arrived[chunk] >= version) return;
  const trace::Span span("wait", {}, {.step = version, .chunk = static_cast<int32_t>(chunk)});
  Wait(lock, [&] { return arrived[chunk] >= version || error_ || stopped_; });
  if (arrived[chunk] >= version) return;
  ThrowIfFailed();
  std::string reason;
  for (const Order& order : orders_) {
    if (order.kind == Order::Kind::kStop) reason = order.reason;
  }
  throw Error(ExitCode::kPeerFailed, "the server stopped the run: {}", reason);
}

void Client::ReportLoss(int64_t step, int64_t slice, int64_t samples, double loss,
                        int64_t correct) {
  wire::WorkerMessage message = NewMessage();
  wire::SliceLoss& body = *message.mutable_slice_loss();
  body.set_step(step);
  body.set_slice(static_cast<uint32_t>(slice));
  body.set_samples(samples);
  body.set_loss(loss);
  body.set_correct(correct);
  Queue(std::move(message), Urgency::kSoon);  // nothing can be done without gradients
}

void Client::PushChunk(int64_t step, size_t part, size_t chunk) {
  const trace::Span span("push", {}, {.step = step, .chunk = static_cast<int32_t>(chunk)});
  wire::WorkerMessage message = NewMessage();
  wire::GradientPart& body = *message.mutable_gradient_part();
  body.set_step(step);
  body.set_chunk(static_cast<uint32_t>(chunk));
  body.mutable_subtree()->set_level(parts_[part].level);
  body.mutable_subtree()->set_index(parts_[part].index);
  const ChunkRange& range = chunks_[chunk];
  Queue({std::move(message), link_->Slot(part).subspan(range.begin, range.end - range.begin)});
}

void Client::PushEmpty(int64_t step, size_t part) {
  for (size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    wire::WorkerMessage message = NewMessage();
    wire::GradientPart& body = *message.mutable_gradient_part();
    body.set_step(step);
    body.set_chunk(static_cast<uint32_t>(chunk));
    body.mutable_subtree()->set_level(parts_[part].level);
    body.mutable_subtree()->set_index(parts_[part].index);
    body.set_empty(true);
    Queue(std::move(message), chunk + 1 < chunks_.size() ? Urgency::kSoon : Urgency::kNow);
  }
}

void Client::ReportEvaluated(const wire::EvaluatedBlock& block) {
  wire::WorkerMessage message = NewMessage();
  *message.mutable_evaluated_block() = block;
  Queue(std::move(message));
}

void Client::ReportTimes(const wire::StepTimes& times) {
  wire::WorkerMessage message = NewMessage();
  *message.mutable_step_times() = times;
  Queue(std::move(message), Urgency::kSoon);
}

Client::Clock::time_point Client::HandedOverAt() const {
  const std::lock_guard lock(mutex_);
  return handed_over_;
}

void Client::ReportFailure(const std::string& message, ExitCode code) {
  wire::WorkerMessage failure = NewMessage();
  failure.mutable_failure()->set_message(message);
  failure.mutable_failure()->set_exit_code(static_cast<int>(code));
  {
    const std::lock_guard lock(mutex_);
    if (error_) return;  // nobody is listening
    outgoing_.push_back({std::move(failure), {}});
    flush_ = true;
    stopped_ = false;
  }
  thread_.request_stop();
  bell_.Ring();
  thread_.join();
}

}  // namespace muster
