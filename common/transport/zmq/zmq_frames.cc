#include "common/transport/zmq/zmq_frames.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "common/base/memory.h"
#include "common/transport/zmq/zmq_socket.h"

namespace muster {
namespace {

// The first and last frame of a message with several frames. No protobuf message begins with zeros.
struct Bracket {
  uint32_t zero = 0;
  uint32_t header_bytes = 0;
  uint64_t tensor_bytes = 0;
  uint64_t number = 0;

  friend bool operator==(const Bracket&, const Bracket&) = default;
};
static_assert(sizeof(Bracket) == 24);

std::optional<Bracket> ReadBracket(const zmq::message_t& frame) {
  Bracket bracket;
  if (frame.size() != sizeof bracket) return std::nullopt;
  std::memcpy(&bracket, frame.data(), sizeof bracket);
  if (bracket.zero != 0) return std::nullopt;
  return bracket;
}

// Releases a tensor after all its pieces have been used.
class SharedRelease {
 public:
  explicit SharedRelease(Release release) : release_(release) {}
  ~SharedRelease() {
    if (release_.call != nullptr) release_.call(release_.hint);
  }
  SharedRelease(const SharedRelease&) = delete;

  static Release Of(const std::shared_ptr<SharedRelease>& shared) {
    return {[](void* hint) { delete static_cast<std::shared_ptr<SharedRelease>*>(hint); },
            new std::shared_ptr<SharedRelease>(shared)};
  }

 private:
  const Release release_;
};

}  // namespace

bool FrameSender::Send(const google::protobuf::MessageLite& header,
                       std::span<const std::byte> tensor, Release release) {
  using zmq::send_flags;
  zmq::message_t head = Serialize(header);
  if (tensor.empty() && head.size() <= most_) {
    return socket_.send(std::move(head), send_flags::dontwait).has_value();
  }
  const Bracket bracket{.header_bytes = static_cast<uint32_t>(head.size()),
                        .tensor_bytes = tensor.size(),
                        .number = number_};
  const auto edge = zmq::buffer(&bracket, sizeof bracket);
  if (!socket_.send(edge, send_flags::dontwait | send_flags::sndmore)) return false;
  ++number_;
  // If libzmq accepts the first frame of a message, it also accepts the others.
  const std::span<const std::byte> words(head.data<std::byte>(), head.size());
  for (size_t at = 0; at < words.size(); at += most_) {
    const auto piece = words.subspan(at, std::min(most_, words.size() - at));
    socket_.send(zmq::buffer(piece.data(), piece.size()), send_flags::sndmore);
  }
  const auto shared = std::make_shared<SharedRelease>(release);
  for (size_t at = 0; at < tensor.size(); at += most_) {
    const auto piece = tensor.subspan(at, std::min(most_, tensor.size() - at));
    socket_.send(Borrow(piece, SharedRelease::Of(shared)), send_flags::sndmore);
  }
  socket_.send(edge, send_flags::none);
  return true;
}

Frames ReceiveFrames(zmq::socket_t& socket, zmq::recv_flags first, size_t most) {
  Frames frames;
  zmq::recv_flags flags = first;
  for (bool more = true; more; flags = zmq::recv_flags::none) {
    zmq::message_t frame;
    if (!socket.recv(frame, flags)) break;
    more = frame.more();
    if (frames.size() <= most) frames.push_back(std::move(frame));
  }
  return frames;
}

namespace {

// Returns the number of frames starting at `at` that contain exactly `bytes` in total, or 0 if no
// number of frames does.
size_t CountFrames(const Frames& frames, size_t at, size_t end, size_t bytes) {
  size_t count = 0, sum = 0;
  for (; at + count < end && sum < bytes; ++count) sum += frames[at + count].size();
  return sum == bytes ? count : 0;
}

std::string Join(std::span<const zmq::message_t> frames) {
  std::string bytes;
  for (const zmq::message_t& frame : frames) bytes.append(frame.data<char>(), frame.size());
  return bytes;
}

size_t SizeOf(std::span<const zmq::message_t> frames) {
  size_t bytes = 0;
  for (const zmq::message_t& frame : frames) bytes += frame.size();
  return bytes;
}

Payload Together(std::span<const zmq::message_t> frames) {
  Payload payload;
  payload.bytes = SizeOf(frames);
  const size_t floats = (payload.bytes + sizeof(float) - 1) / sizeof(float);
  const std::shared_ptr<float[]> values = std::make_unique_for_overwrite<float[]>(floats);
  auto* to = reinterpret_cast<std::byte*>(values.get());
  for (const zmq::message_t& frame : frames) {
    if (frame.size() > 0) std::memcpy(to, frame.data(), frame.size());
    to += frame.size();
  }
  payload.data = values.get();
  payload.owner = values;
  return payload;
}

bool Parse(const zmq::message_t& frame, google::protobuf::MessageLite& message) {
  return frame.size() <= kMostHeaderBytes &&
         message.ParseFromArray(frame.data(), static_cast<int>(frame.size()));
}

}  // namespace

std::optional<Payload> Assemble(Frames frames, google::protobuf::MessageLite& message) {
  if (frames.size() == 1) {
    return Parse(frames[0], message) ? std::optional(Payload()) : std::nullopt;
  }
  if (frames.size() < 3) return std::nullopt;
  const std::optional<Bracket> bracket = ReadBracket(frames.front());
  if (!bracket || bracket != ReadBracket(frames.back())) return std::nullopt;
  if (bracket->header_bytes > kMostHeaderBytes) return std::nullopt;
  const size_t end = frames.size() - 1;
  const size_t words = CountFrames(frames, 1, end, bracket->header_bytes);
  if (words == 0) return std::nullopt;
  const std::span<zmq::message_t> all(frames);
  const std::span<zmq::message_t> tensor = all.subspan(1 + words, end - 1 - words);
  // If the sizes differ, frames are missing. They may even be frames of the header, with a piece of
  // the tensor in their place.
  if (SizeOf(tensor) != bracket->tensor_bytes) return std::nullopt;
  const bool parsed =
      words == 1 ? Parse(frames[1], message) : message.ParseFromString(Join(all.subspan(1, words)));
  if (!parsed) return std::nullopt;
  if (tensor.empty()) return Payload();
  if (tensor.size() == 1) return MakePayload(std::move(tensor[0]));
  return Together(tensor);
}

}  // namespace muster
