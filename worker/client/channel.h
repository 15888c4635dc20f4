// How a client's messages come and go: which threads send and receive, and what it is to wait.
// There are two, which the link decides between:
//
//   threaded_channel.cc  a communication thread owns the link; the others' calls go through a
//                        queue. Tensors that go over a wire leave beside the computation.
//   direct_channel.cc    whoever calls sends, and whoever waits receives: nothing is handed from
//                        thread to thread. Messages are short notices.
//
// Either has a thread that sends a beat each second.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>

#include "common/link/link.h"
#include "common/link/wire_type.h"
#include "proto/wire.pb.h"

namespace muster {

// A message, and the chunk of a gradient buffer that it is about, if it is about one. The chunk
// stays unchanged until the server has used it.
struct Outgoing {
  wire::WorkerMessage message;
  std::span<const float> tensor = {};
  Urgency urgency = {};
};

class Channel {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kHeartbeatInterval{1000};
  static constexpr std::chrono::milliseconds kFlushLimit{2000};  // of Finish

  // The user of the channel. The calls come from the channel's thread and from whoever waits,
  // without any lock of the waiting one.
  class Owner {
   public:
    // What came, one message at a time. What it throws ends the channel.
    virtual void Handle(FromServer&& event) = 0;
    // Once every kHeartbeatInterval, after what had come was handled: what to tell the server.
    virtual wire::WorkerMessage Heartbeat() = 0;
    // The channel's thread has ended.
    virtual void Fail(std::exception_ptr why) = 0;

   protected:
    ~Owner() = default;
  };

  virtual ~Channel() = default;

  virtual const ClientLink& link() const = 0;

  // Before all that follows.
  virtual void Start() = 0;
  // No thread of the channel runs any more; the connection stays, until the channel goes.
  virtual void Stop() = 0;
  // Stops; then sends what waits, tensors only as far as there is room for them at once, and
  // `last`, and waits a moment until it has left.
  virtual void Finish(wire::WorkerMessage last) = 0;

  // kSoon: with the next message that goes at once, or when somebody begins to wait.
  enum class When { kNow, kSoon };
  virtual void Send(Outgoing outgoing, When when) = 0;
  // When the last message that goes at once was handed to the link.
  virtual Clock::time_point HandedOverAt() const = 0;

  // Waits, with `lock` locked, until `ready()`, which becomes true by what Owner is told, and which
  // that lock guards. False: `until` came first.
  using Ready = std::function<bool()>;
  static constexpr Clock::time_point kForEver = Clock::time_point::max();
  virtual bool Wait(std::unique_lock<std::mutex>& lock, const Ready& ready,
                    Clock::time_point until = kForEver) = 0;

  // Tensors are rounded to `type` where they travel; the largest one has `floats`. By
  // Owner::Handle.
  virtual void SetWireType(WireType type, size_t floats) = 0;
};

// The one that suits the link. `owner` outlives it.
std::unique_ptr<Channel> MakeChannel(std::unique_ptr<ClientLink> link, Channel::Owner& owner);

// Its two kinds.
std::unique_ptr<Channel> MakeThreadedChannel(std::unique_ptr<ClientLink> link,
                                             Channel::Owner& owner);
std::unique_ptr<Channel> MakeDirectChannel(std::unique_ptr<ClientLink> link, Channel::Owner& owner);

// What is being caught, as an Error. For the channels.
std::exception_ptr CommunicationError();

}  // namespace muster
