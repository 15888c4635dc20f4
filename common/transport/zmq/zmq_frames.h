// Converts between messages and ZeroMQ frames (proto/PROTOCOL.md, Frames).
//
// Messages to the server are sent in pieces. libzmq accepts a frame of any size up to its limit
// from any peer, before it authenticates the peer, so the limit is a piece instead of a chunk.
//
// A message of several frames is enclosed by two equal frames, which differ from those of every
// other message of its sender. CURVE proves that each frame is from the other side and newer than
// the previous one, but not that none is missing. Without the enclosing frames, an attacker in
// between could remove a tensor and the next header, and so give one chunk the values of another.
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
// An upper bound for what CURVE adds to a frame (33 bytes), and for the commands of a handshake.
inline constexpr size_t kFrameOverhead = 1 << 10;

// Owned by one end of a link. One thread.
class FrameSender {
 public:
  // `most`: the maximum size of a frame in bytes.
  FrameSender(zmq::socket_t& socket, size_t most) : socket_(socket), most_(most) {}

  // False: libzmq accepts nothing more for this peer; nothing was sent or released. Otherwise
  // `release` is called after the tensor's bytes have been used. Throws zmq::error_t.
  bool Send(const google::protobuf::MessageLite& header, std::span<const std::byte> tensor,
            Release release);

 private:
  zmq::socket_t& socket_;
  const size_t most_;
  uint64_t number_ = 0;  // of the next message with several frames
};

using Frames = std::vector<zmq::message_t>;

// Reads the frames of a message, or the rest if the first ones have been read. Empty if none is
// available and `first` is dontwait. Discards all frames beyond `most` + 1; the extra one marks the
// excess.
Frames ReceiveFrames(zmq::socket_t& socket, zmq::recv_flags first, size_t most);

// The maximum number of frames in a message of `bytes`.
constexpr size_t MostFrames(size_t bytes) { return (bytes + kMostHeaderBytes) / kPieceBytes + 6; }

// Parses `message` and returns its tensor; empty if the frames are invalid. A tensor of one frame
// stays in place, the pieces of a longer one are copied into one buffer.
std::optional<Payload> Assemble(Frames frames, google::protobuf::MessageLite& message);

}  // namespace muster
