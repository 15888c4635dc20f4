// A communication thread owns the link: it sends what other threads queue, receives, and sends
// heartbeats.
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "common/base/error.h"
#include "common/base/fd.h"
#include "common/link/outbox.h"
#include "common/trace/trace.h"
#include "worker/client/channel.h"
#include "worker/client/wire_buffers.h"

namespace muster {
namespace {

constexpr std::chrono::milliseconds kLongestPoll{100};

class ThreadedChannel : public Channel {
 public:
  ThreadedChannel(std::unique_ptr<ClientLink> link, Owner& owner)
      : owner_(owner), outbox_(Release{Ring, this}), link_(std::move(link)) {}
  ~ThreadedChannel() override { Stop(); }

  const ClientLink& link() const override { return *link_; }
  void Start() override {
    thread_ = std::jthread([this](std::stop_token stop) { Run(stop); });
  }
  void Stop() override;
  void Finish(wire::WorkerMessage last) override;
  void Send(Outgoing outgoing, When when) override;
  Clock::time_point HandedOverAt() const override { return handed_over_; }
  bool Wait(std::unique_lock<std::mutex>& lock, const Ready& ready,
            Clock::time_point until) override;
  void SetWireType(WireType type, size_t floats) override;

 private:
  static void Ring(void* channel) { static_cast<ThreadedChannel*>(channel)->bell_.Ring(); }

  void Run(const std::stop_token& stop);
  void Sleep(Clock::time_point until);
  void Receive();
  void SendQueued();
  // Returns false if the server accepts nothing at the moment, or if no buffer is free for a
  // tensor.
  bool HandOver(const Outgoing& outgoing, Release sent);

  Owner& owner_;
  const EventFd bell_;  // wakes the thread
  std::condition_variable changed_;
  std::atomic<Clock::time_point> handed_over_{};
  std::mutex mutex_;
  std::deque<Outgoing> queued_;  // guarded by mutex_

  // Used by the communication thread and, after its end, by Finish.
  Outbox<Outgoing> outbox_;
  WireType wire_type_ = wire::FP32;
  std::optional<WireBuffers> wire_buffers_;  // for 16-bit types; the link's threads return them
  std::unique_ptr<ClientLink> link_;         // declared after what its threads use
  std::jthread thread_;
};

void ThreadedChannel::Stop() {
  thread_.request_stop();
  bell_.Ring();
  if (thread_.joinable()) thread_.join();
}

void ThreadedChannel::Finish(wire::WorkerMessage last) {
  Stop();
  Send({.message = std::move(last)}, When::kNow);
  const Clock::time_point until = Clock::now() + kFlushLimit;
  try {
    SendQueued();
    outbox_.DropTensors();  // gradients are no longer needed
    // The link accepts more when the server has read earlier messages.
    while (!outbox_.empty() && Clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      SendQueued();
    }
    link_->Flush(std::max(std::chrono::milliseconds(0),
                          std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now())));
  } catch (const std::exception&) {
    // The server is gone as well.
  }
}

void ThreadedChannel::Send(Outgoing outgoing, When) {
  {
    const std::lock_guard lock(mutex_);
    queued_.push_back(std::move(outgoing));
  }
  bell_.Ring();
}

bool ThreadedChannel::Wait(std::unique_lock<std::mutex>& lock, const Ready& ready,
                           Clock::time_point until) {
  if (until != kForEver) return changed_.wait_until(lock, until, ready);
  changed_.wait(lock, ready);
  return true;
}

void ThreadedChannel::SetWireType(WireType type, size_t floats) {
  wire_type_ = type;
  if (type != wire::FP32) wire_buffers_.emplace(floats, bell_);
}

void ThreadedChannel::Run(const std::stop_token& stop) {
  trace::NameThread("communication");
  Clock::time_point next_heartbeat = Clock::now() + kHeartbeatInterval;
  try {
    while (!stop.stop_requested()) {
      Sleep(next_heartbeat);
      SendQueued();
      Receive();
      if (Clock::now() < next_heartbeat) continue;
      next_heartbeat = Clock::now() + kHeartbeatInterval;
      (void)link_->Send(owner_.Heartbeat(), {});
      (void)link_->Deliver();
      changed_.notify_all();
    }
  } catch (...) {
    owner_.Fail(CommunicationError());
    changed_.notify_all();
  }
}

void ThreadedChannel::Sleep(Clock::time_point until) {
  if (link_->PrepareToSleep()) {
    pollfd fds[] = {{bell_.get(), POLLIN, 0}, {link_->fd(), POLLIN, 0}};
    const auto limit =
        std::clamp(std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()),
                   std::chrono::milliseconds(0), kLongestPoll);
    (void)::poll(fds, std::size(fds), static_cast<int>(limit.count()));
  }
  bell_.Clear();
}

// Handles a limited number of messages, so that gradients do not wait behind many weights.
void ThreadedChannel::Receive() {
  for (int i = 0; i < 16; ++i) {
    std::optional<FromServer> event = link_->Receive();
    if (!event) return;
    owner_.Handle(std::move(*event));
    changed_.notify_all();
  }
}

void ThreadedChannel::SendQueued() {
  {
    const std::lock_guard lock(mutex_);
    for (; !queued_.empty(); queued_.pop_front()) {
      Outgoing& next = queued_.front();
      if (next.tensor.empty()) {
        const size_t bytes = next.message.ByteSizeLong();
        outbox_.AddControl(bytes, std::move(next));
      } else {
        const size_t bytes = next.tensor.size() * BytesOf(wire_type_);
        const Urgency urgency = next.urgency;
        outbox_.AddTensor(urgency, bytes, std::move(next));
      }
    }
  }
  if (outbox_.empty()) return;
  outbox_.Send([this](const Outgoing& next, Release sent) { return HandOver(next, sent); });
  (void)link_->Deliver();
  handed_over_ = Clock::now();
}

bool ThreadedChannel::HandOver(const Outgoing& outgoing, Release sent) {
  std::span<const std::byte> bytes = std::as_bytes(outgoing.tensor);
  if (!bytes.empty() && wire_buffers_) {
    WireBuffers::Buffer* const buffer = wire_buffers_->Take();
    if (buffer == nullptr) {
      sent.call(sent.hint);
      return false;
    }
    // Narrow's result is ignored: the server detects infinities.
    (void)Narrow(wire_type_, outgoing.tensor, buffer->values().data());
    bytes = std::as_bytes(buffer->values().first(outgoing.tensor.size()));
    sent = buffer->GivesBack(sent);
  }
  if (link_->Send(outgoing.message, bytes, sent)) return true;
  // The server is stopped, or cannot keep up with the blocks of an evaluation. The message stays
  // queued; the heartbeat check notices a silent server.
  if (sent.call != nullptr) sent.call(sent.hint);
  return false;
}

}  // namespace

std::unique_ptr<Channel> MakeThreadedChannel(std::unique_ptr<ClientLink> link,
                                             Channel::Owner& owner) {
  return std::make_unique<ThreadedChannel>(std::move(link), owner);
}

}  // namespace muster
