// The calling thread sends; the waiting thread receives. Another thread sends heartbeats and, with
// each one, receives messages in case no thread is waiting.
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <optional>
#include <thread>
#include <utility>

#include "common/base/adaptive_spin.h"
#include "common/base/error.h"
#include "common/trace/trace.h"
#include "worker/client/channel.h"

namespace muster {
namespace {

using std::chrono::milliseconds;

class DirectChannel : public Channel {
 public:
  DirectChannel(std::unique_ptr<ClientLink> link, Owner& owner)
      : owner_(owner), link_(std::move(link)) {}
  ~DirectChannel() override { Stop(); }

  const ClientLink& link() const override { return *link_; }
  void Start() override {
    thread_ = std::jthread([this](std::stop_token stop) { Run(std::move(stop)); });
  }
  void Stop() override {
    thread_.request_stop();
    if (thread_.joinable()) thread_.join();
  }
  void Finish(wire::WorkerMessage last) override;
  void Send(Outgoing outgoing, When when) override;
  Clock::time_point HandedOverAt() const override { return handed_over_; }
  bool Wait(std::unique_lock<std::mutex>& lock, const Ready& ready,
            Clock::time_point until) override;
  void Poll() override;
  void SetWireType(WireType, size_t) override {}  // nothing is sent over a wire

 private:
  void Run(std::stop_token stop);
  // Sleeps until a message arrives, but at most `limit`. Requires receiving_ to be locked.
  void Sleep(milliseconds limit);
  void Receive();  // requires receiving_ to be locked

  Owner& owner_;
  std::unique_ptr<ClientLink> link_;
  std::atomic<Clock::time_point> handed_over_{};
  std::mutex receiving_;  // held by the receiving thread; locked before the owner's lock
  AdaptiveSpin spin_;     // guarded by receiving_
  std::jthread thread_;
};

void DirectChannel::Finish(wire::WorkerMessage last) {
  Stop();
  (void)link_->Send(last, {});
  link_->Flush(kFlushLimit);
}

void DirectChannel::Send(Outgoing outgoing, When when) {
  (void)link_->Send(outgoing.message, std::as_bytes(outgoing.tensor));
  if (when == When::kSoon) return;
  // If the server is gone, the receiver notices it at end of file, after the last messages.
  (void)link_->Deliver();
  handed_over_ = Clock::now();
}

bool DirectChannel::Wait(std::unique_lock<std::mutex>& lock, const Ready& ready,
                         Clock::time_point until) {
  while (!ready()) {
    milliseconds limit = kHeartbeatInterval;
    if (until != kForEver) {
      const Clock::duration left = until - Clock::now();
      if (left <= Clock::duration::zero()) return false;
      limit = std::min(limit, std::chrono::ceil<milliseconds>(left));
    }
    lock.unlock();
    (void)link_->Deliver();
    const std::lock_guard receiving(receiving_);
    lock.lock();
    if (ready()) return true;  // another thread received the message
    lock.unlock();
    Sleep(limit);
    Receive();
    lock.lock();
  }
  return true;
}

void DirectChannel::Poll() {
  const std::lock_guard receiving(receiving_);
  constexpr int kMost = 1000;  // a link whose other end is gone may stay pending
  for (int i = 0; i < kMost && link_->Pending(); ++i) Receive();
}

void DirectChannel::Sleep(milliseconds limit) {
  if (spin_.Spin([this] { return link_->Pending(); })) return;
  pollfd fd{link_->fd(), POLLIN, 0};
  if (link_->PrepareToSleep()) (void)::poll(&fd, 1, static_cast<int>(limit.count()));
  spin_.Slept();
}

void DirectChannel::Receive() {
  for (int i = 0; i < 16; ++i) {
    std::optional<FromServer> event = link_->Receive();
    if (!event) return;
    owner_.Handle(std::move(*event));
    // All messages of the packet have been handled. Looking for another packet would cost a system
    // call.
    if (!link_->Pending()) return;
  }
}

void DirectChannel::Run(std::stop_token stop) {
  trace::NameThread("communication");
  std::mutex nothing;
  std::condition_variable_any never;
  std::unique_lock asleep(nothing);
  try {
    for (;;) {
      never.wait_for(asleep, stop, kHeartbeatInterval, [] { return false; });
      if (stop.stop_requested()) return;
      {
        const std::unique_lock receiving(receiving_, std::try_to_lock);
        if (receiving) Receive();  // else another thread is receiving
      }
      (void)link_->Send(owner_.Heartbeat(), {});
      (void)link_->Deliver();
    }
  } catch (...) {
    owner_.Fail(CommunicationError());
  }
}

}  // namespace

std::unique_ptr<Channel> MakeDirectChannel(std::unique_ptr<ClientLink> link,
                                           Channel::Owner& owner) {
  return std::make_unique<DirectChannel>(std::move(link), owner);
}

}  // namespace muster
