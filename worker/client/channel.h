// Sends and receives a client's messages. The link decides between two implementations:
//
//   threaded_channel.cc  a communication thread owns the link; calls of other threads go through a
//                        queue. Tensors are sent over the wire while the computation continues.
//   direct_channel.cc    the calling thread sends and the waiting thread receives, without a
//                        handover between threads. Messages are short notices.
//
// Both have a thread that sends a heartbeat every second.
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

// A message and, optionally, the chunk of a gradient buffer that it carries. The chunk must stay
// unchanged until the server has used it.
struct Outgoing {
  wire::WorkerMessage message;
  std::span<const float> tensor = {};
  Urgency urgency = {};
};

class Channel {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kHeartbeatInterval{1000};
  static constexpr std::chrono::milliseconds kFlushLimit{2000};  // for Finish

  // The user of the channel. Its methods are called on the channel's thread and on waiting threads,
  // which then hold none of the owner's locks.
  class Owner {
   public:
    // Handles one message. An exception ends the channel.
    virtual void Handle(FromServer&& event) = 0;
    // Returns the heartbeat message. Called every kHeartbeatInterval, after an attempt to receive
    // messages.
    virtual wire::WorkerMessage Heartbeat() = 0;
    // Called when an error has ended the channel's thread.
    virtual void Fail(std::exception_ptr why) = 0;

   protected:
    ~Owner() = default;
  };

  virtual ~Channel() = default;

  virtual const ClientLink& link() const = 0;

  // Must be called before everything else.
  virtual void Start() = 0;
  // Ends the channel's threads. The connection stays open until the channel is destroyed.
  virtual void Stop() = 0;
  // Stops the channel, sends the queued messages (tensors only while there is room for them) and
  // `last`, and waits at most kFlushLimit for them to be sent.
  virtual void Finish(wire::WorkerMessage last) = 0;

  // kSoon messages are sent together with the next kNow message, or as soon as a thread waits.
  enum class When { kNow, kSoon };
  virtual void Send(Outgoing outgoing, When when) = 0;
  // The time at which the last kNow message was handed to the link.
  virtual Clock::time_point HandedOverAt() const = 0;

  // Waits until `ready()`. `lock` must be locked, and guards the state that `ready` reads and
  // Owner's methods change. Returns false if `until` passed first.
  using Ready = std::function<bool()>;
  static constexpr Clock::time_point kForEver = Clock::time_point::max();
  virtual bool Wait(std::unique_lock<std::mutex>& lock, const Ready& ready,
                    Clock::time_point until = kForEver) = 0;

  // Handles messages that have already arrived, if no other thread does so. Must be called without
  // the owner's locks.
  virtual void Poll() {}

  // Rounds tensors on the wire to `type`; the largest tensor has `floats` values. Called only from
  // Owner::Handle.
  virtual void SetWireType(WireType type, size_t floats) = 0;
};

// Makes the channel that suits the link. `owner` must outlive it.
std::unique_ptr<Channel> MakeChannel(std::unique_ptr<ClientLink> link, Channel::Owner& owner);

std::unique_ptr<Channel> MakeThreadedChannel(std::unique_ptr<ClientLink> link,
                                             Channel::Owner& owner);
std::unique_ptr<Channel> MakeDirectChannel(std::unique_ptr<ClientLink> link, Channel::Owner& owner);

// Returns the exception being handled, as an Error.
std::exception_ptr CommunicationError();

}  // namespace muster
