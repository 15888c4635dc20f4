// How a message becomes ZeroMQ's frames, and frames a message (proto/PROTOCOL.md, Frames).
//
// What goes to the server goes in pieces: libzmq takes a frame of any size up to its limit from
// whoever connects, before it knows who that is. So the limit is a piece, and not a chunk.
//
// A message of several frames stands between two frames that are alike, and unlike those of every
// other message of its sender. CURVE proves of each frame that it is the other side's, and newer
// than the one before, but not that nothing was left out: whoever sits in between could otherwise
// take away a tensor and the header after it, and so give one chunk the values of another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>
#include <zmq.hpp>

#include "common/link/link.h"

namespace muster {

inline constexpr size_t kPieceBytes = 256 << 10;
inline constexpr size_t kMostHeaderBytes = 4 << 20;
// What CURVE adds to a frame (33 bytes), and more than a handshake's commands have.
inline constexpr size_t kFrameOverhead = 1 << 10;

// Owner: one end of a link. One thread.
class FrameSender {
 public:
  // `most`: of a frame.
  FrameSender(zmq::socket_t& socket, size_t most) : socket_(socket), most_(most) {}

  // False: libzmq takes nothing more for this peer; nothing was sent, and nothing is released.
  // Otherwise `release` is called once the tensor's bytes have been used. Throws zmq::error_t.
  bool Send(const google::protobuf::MessageLite& header, std::span<const std::byte> tensor,
            Release release);

 private:
  zmq::socket_t& socket_;
  const size_t most_;
  uint64_t number_ = 0;  // of the next message of several frames
};

using Frames = std::vector<zmq::message_t>;

// The frames of a message, or the rest of one whose first frames have been read; none if nothing
// waits, with `first` dontwait. Those beyond `most` are read away, but for one, which says so.
Frames ReceiveFrames(zmq::socket_t& socket, zmq::recv_flags first, size_t most);

// How many frames a message of `bytes` may have.
constexpr size_t MostFrames(size_t bytes) { return (bytes + kMostHeaderBytes) / kPieceBytes + 6; }

// The tensor that came with it; empty if the frames are no message. A tensor of one frame stays
// where it is, one of several is copied together.
std::optional<Payload> Assemble(Frames frames, google::protobuf::MessageLite& message);

}  // namespace muster
