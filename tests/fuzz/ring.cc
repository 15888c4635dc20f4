// The ring in shared memory, whose other side may write anything anywhere at any time. Messages of
// a correct peer arrive unchanged and in order. Those of a hostile one are never too long, and a
// ring found broken stays broken.
#include <deque>
#include <memory>

#include "common/transport/local/message_ring.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/ring_place.h"

namespace muster::fuzz {
namespace fuzz_ring {

constexpr size_t kLength = MessageRing::kLengthBytes;

// One side, which waits for space like LocalConnection.
struct Side {
  Side(RingMemory& mine, const RingMemory& theirs) : ring(mine, theirs) {}

  void Send(std::string message) {
    unsent.push_back(std::move(message));
    Flush();
  }
  void Flush() {
    while (!unsent.empty()) {
      at = ring.Write(unsent.front(), at);
      if (at < kLength + unsent.front().size()) break;
      unsent.pop_front();
      at = 0;
    }
    ring.Publish();
    (void)ring.MustRing(MessageRing::Reason::kPublished);
    (void)ring.WantRoom(!unsent.empty());
  }

  MessageRing ring;
  std::deque<std::string> unsent;
  size_t at = 0;
};

class Play {
 public:
  explicit Play(Input input) : input_(input) {}

  void Run() {
    while (!input_.empty()) Do(input_.Byte() % 8);
  }

 private:
  void Do(int what) {
    switch (what) {
      case 0:
      case 1:
        return Say(us_, said_by_us_);
      case 2:
      case 3:
        return Say(peer_, said_by_peer_);
      case 4:
        return Hear(us_, said_by_peer_);
      case 5:
        if (!hostile_) Hear(peer_, said_by_us_);
        return;
      case 6:
        us_.ring.PrepareToSleep();
        (void)us_.ring.Pending();
        us_.ring.WakeUp();
        return us_.Flush();
      default:
        return WriteAnything();
    }
  }

  void Say(Side& side, std::deque<std::string>& said) {
    if (said.size() > 20) return;  // no reader
    const size_t repeat = 1 + input_.Byte();
    std::string message;
    const std::string piece = input_.Piece();
    for (size_t i = 0; i < repeat && message.size() < 100'000; ++i) message += piece;
    said.push_back(message);
    side.Send(std::move(message));
  }

  void Hear(Side& side, std::deque<std::string>& said) {
    side.Flush();
    (&side == &us_ ? peer_ : us_).Flush();
    std::string message;
    const MessageRing::Status status = side.ring.Take(message);
    (void)side.ring.MustRing(MessageRing::Reason::kTaken);
    Require(!broken_ || status == MessageRing::Status::kBroken, "a broken ring recovered");
    if (status == MessageRing::Status::kBroken) {
      Require(hostile_, "a correct peer broke the ring");
      broken_ = true;
    }
    if (status != MessageRing::Status::kMessage) return;
    Require(message.size() <= MessageRing::kMaxMessageBytes, "a message is too long");
    if (hostile_) return;
    Require(!said.empty() && said.front() == message, "the message differs from the one sent");
    said.pop_front();
  }

  // Prefers the control words.
  void WriteAnything() {
    hostile_ = true;
    const size_t at = PlaceInRing(input_.Number<uint16_t>());
    const std::string bytes = input_.Piece();
    auto* const memory = reinterpret_cast<char*>(theirs_.get());
    std::memcpy(memory + at, bytes.data(), std::min(bytes.size(), sizeof(RingMemory) - at));
  }

  Input input_;
  const std::unique_ptr<RingMemory> ours_ = std::make_unique<RingMemory>();
  const std::unique_ptr<RingMemory> theirs_ = std::make_unique<RingMemory>();
  Side us_{*ours_, *theirs_}, peer_{*theirs_, *ours_};
  std::deque<std::string> said_by_us_, said_by_peer_;
  bool hostile_ = false, broken_ = false;
};

}  // namespace fuzz_ring
}  // namespace muster::fuzz

FUZZ_TARGET(ring) {
  muster::fuzz::SilenceLogs();
  muster::fuzz::fuzz_ring::Play(muster::fuzz::Input(data, size)).Run();
  return 0;
}
