// Converts between messages and ZeroMQ frames (proto/PROTOCOL.md, Frames).
//
// Messages to the server are sent in pieces. libzmq accepts frames up to its size limit from any
// peer before it authenticates the peer. So the limit is the size of a piece, not of a chunk.
//
// A message of several frames is enclosed by two equal frames, which are different for every
// message of a sender. CURVE proves that each frame comes from the other side and is newer than the
// previous one, but not that none is missing. Without the enclosing frames, a man in the middle
// could remove a tensor and the next header and so give one chunk the values of another.
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

// Owned by one end of a link. Use from one thread only.
class FrameSender {
 public:
  // `most` is the maximum size of a frame in bytes.
  FrameSender(zmq::socket_t& socket, size_t most) : socket_(socket), most_(most) {}

  // Returns false, without sending or releasing anything, if libzmq accepts nothing more for this
  // peer. Otherwise `release` is called when the tensor's bytes are no longer needed. Throws
  // zmq::error_t.
  bool Send(const google::protobuf::MessageLite& header, std::span<const std::byte> tensor,
            Release release);

 private:
  zmq::socket_t& socket_;
  const size_t most_;
  uint64_t number_ = 0;  // the number of the next message with several frames
};

using Frames = std::vector<zmq::message_t>;

// Reads the frames of a message, or the rest of them if the first ones have been read. Returns
// nothing if no frame is available and `first` is dontwait. Discards all frames beyond `most` + 1;
// the additional frame shows that there were too many.
Frames ReceiveFrames(zmq::socket_t& socket, zmq::recv_flags first, size_t most);

// The maximum number of frames in a message of `bytes` bytes.
constexpr size_t MostFrames(size_t bytes) { return (bytes + kMostHeaderBytes) / kPieceBytes + 6; }

// Parses `message` and returns its tensor. Empty if the frames are invalid. A tensor in one frame
// stays in place; the pieces of a longer one are copied into one buffer.
std::optional<Payload> Assemble(Frames frames, google::protobuf::MessageLite& message);

}  // namespace muster
