// Splitting a message into frames and joining them restores it. If frames of two messages are lost,
// the header and bytes of different messages are never joined.
#include <set>
#include <utility>

#include "common/transport/zmq/zmq_frames.h"
#include "proto/wire.pb.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace fuzz_frames {

// Two ends of a connection in this thread.
struct Pipe {
  Pipe() {
    to.bind("inproc://pieces");
    from.connect("inproc://pieces");
  }
  zmq::context_t context{0};
  zmq::socket_t from{context, zmq::socket_type::pair}, to{context, zmq::socket_type::pair};
};

Frames CutUp(Pipe& pipe, FrameSender& sender, const wire::WorkerMessage& message,
             std::span<const std::byte> tensor) {
  Require(sender.Send(message, tensor, {}), "a frame was not sent");
  return ReceiveFrames(pipe.to, zmq::recv_flags::dontwait, 1 << 20);
}

zmq::message_t Copy(const zmq::message_t& frame) { return {frame.data(), frame.size()}; }

wire::WorkerMessage Part(uint32_t rank, const std::string& more) {
  wire::WorkerMessage message;
  message.mutable_address()->set_rank(rank);
  message.mutable_gradient_part()->set_chunk(1);
  if (!more.empty()) message.mutable_hello()->add_setting(more);
  return message;
}

// A joined message equals one of the originals.
void CheckMixture(Frames frames, const std::vector<wire::WorkerMessage>& sent) {
  wire::WorkerMessage message;
  const auto payload = Assemble(std::move(frames), message);
  if (!payload) return;
  const uint32_t rank = message.address().rank();
  Require(rank < sent.size() && message.SerializeAsString() == sent[rank].SerializeAsString(),
          "a header mixes two messages");
  const auto* bytes = static_cast<const uint8_t*>(payload->data);
  for (size_t i = 0; i < payload->bytes; ++i) {
    Require(bytes[i] == static_cast<uint8_t>(0xa0 + rank), "a tensor belongs to another message");
  }
}

void CheckCut(Input input) {
  static Pipe pipe;
  const size_t most = 16 + input.Byte();
  FrameSender sender(pipe.from, most);
  Frames all;
  std::set<size_t> ends;  // of messages
  std::vector<wire::WorkerMessage> sent;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    sent.push_back(Part(rank, input.Piece().substr(0, 2000)));
    const std::vector<std::byte> tensor(input.Number<uint16_t>() % 2000, std::byte(0xa0 + rank));
    Frames frames = CutUp(pipe, sender, sent[rank], tensor);
    Frames copy;
    for (const zmq::message_t& frame : frames) copy.push_back(Copy(frame));
    wire::WorkerMessage message;
    const auto whole = Assemble(std::move(copy), message);
    Require(whole && whole->bytes == tensor.size(), "a tensor was not reassembled");
    Require(tensor.empty() || std::memcmp(whole->data, tensor.data(), tensor.size()) == 0,
            "a tensor has changed");
    Require(reinterpret_cast<uintptr_t>(whole->data) % alignof(float) == 0, "not aligned");
    CheckMixture(std::move(frames), sent);
    // Copies, because frames refer to the tensor.
    for (const zmq::message_t& frame : CutUp(pipe, sender, sent[rank], tensor)) {
      all.push_back(Copy(frame));
    }
    ends.insert(all.size() - 1);
  }
  // A subset of all frames, in order. Incomplete messages stay pending.
  Frames some;
  size_t at = 0;
  while (!input.empty() && (at += input.Byte() % 16) < all.size()) {
    some.push_back(Copy(all[at]));
    if (ends.contains(at++)) CheckMixture(std::exchange(some, {}), sent);
  }
}

// Arbitrary frames. An accepted message has its header in the frames after the first.
void CheckAny(Input input) {
  Frames frames;
  size_t bytes = 0;
  while (!input.empty()) {
    const std::string frame = input.Piece();
    bytes += frame.size();
    frames.emplace_back(frame.data(), frame.size());
  }
  wire::WorkerMessage message;
  const auto payload = Assemble(std::move(frames), message);
  Require(!payload || payload->bytes <= bytes, "more bytes than received");
}

}  // namespace fuzz_frames
}  // namespace muster::fuzz

FUZZ_TARGET(frames) {
  muster::fuzz::SilenceLogs();
  muster::fuzz::Input input(data, size);
  input.Byte() == 0 ? muster::fuzz::fuzz_frames::CheckAny(input)
                    : muster::fuzz::fuzz_frames::CheckCut(input);
  return 0;
}
