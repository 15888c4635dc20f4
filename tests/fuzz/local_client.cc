// A worker's end of the local link, with this target as the server. It passes memory that is too
// small or not sealed, other descriptors, or the wrong number, and writes anything into the ring.
// The worker can use all that it accepts, or ends with an Error.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/transport/local/local_link.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/ring_place.h"
#include "tests/job/raw_local_link.h"
#include "worker/client/tensor_store.h"

namespace muster::fuzz {
namespace fuzz_local_client {

class Play {
 public:
  explicit Play(Input input) : input_(input) {
    const LocalAddress address(endpoint_);
    Require(::bind(listener_.get(), address.get(), address.size) == 0 &&
                ::listen(listener_.get(), 1) == 0,
            "cannot listen");
    link_ = ConnectLocal(endpoint_, {});
    socket_.emplace(UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  }

  void Run() {
    while (!input_.empty()) Do(input_.Byte() % 8);
  }

 private:
  void Do(int what) {
    switch (what) {
      case 0:
      case 1:
        return HandOver();
      case 2: {
        socket_->Append(input_.Piece());
        (void)socket_->Flush();
        return;
      }
      case 3:
      case 4:
        return WriteAnything();
      case 5: {
        wire::WorkerMessage message;
        message.mutable_failure()->set_message(input_.Piece());
        (void)link_->Send(message, {}, {});
        (void)link_->Deliver();
        return;
      }
      default:
        return Receive();
    }
  }

  // Creates correct memory with the faults that the input selects, a byte for each piece.
  UniqueFd Memory(size_t bytes) {
    const uint8_t how = input_.Byte();
    if (how == 1) return UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC));
    if (how == 2) bytes = 0;
    if (how == 3) bytes -= 1;
    if (how == 4) bytes = input_.Number<uint32_t>();
    if (how == 5) bytes = size_t{1} << 45;  // sparse, so it uses no space
    UniqueFd fd(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    (void)::ftruncate(fd.get(), static_cast<off_t>(bytes));
    if (how != 6) (void)::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    return fd;
  }

  void HandOver() {
    const size_t count = input_.Byte();
    const size_t pieces = count < 200 ? 4 : count % 5;
    std::vector<UniqueFd> fds;
    std::vector<int> raw;
    for (size_t i = 0; i < pieces; ++i)
      raw.push_back(fds.emplace_back(Memory(testing::kRawBytes[i % 4])).get());
    wire::ServerMessage welcome = testing::RawWelcome();
    (void)welcome.MergeFromString(input_.Piece());
    socket_->Append(welcome.SerializeAsString(), raw);
    (void)socket_->Flush();
    if (pieces == 4) to_worker_ = std::move(fds[3]);
  }

  // Does not write beyond a mapping, which would be this target's fault.
  void WriteAnything() {
    const size_t at = PlaceInRing(input_.Number<uint16_t>());
    const std::string bytes = input_.Piece();
    if (!to_worker_.valid()) return;
    const size_t most = std::min(bytes.size(), sizeof(RingMemory) - at);
    (void)::pwrite(to_worker_.get(), bytes.data(), most, static_cast<off_t>(at));
  }

  void Receive() {
    OrError("", [&] {
      (void)link_->PrepareToSleep();
      const auto event = link_->Receive();
      if (!event || !event->shared) return;
      const auto layout = GradientLayoutOf(event->message.welcome());
      if (layout.arena_floats() > testing::kRawFloats || layout.arenas() > 8) return;
      const auto tensors = MakeSharedTensors(std::move(*event->shared), layout);
      float sum = 0;
      for (const int buffer : {0, 1, 2}) {
        for (const float value : tensors->WeightBuffer(buffer)) sum += value;
      }
      for (size_t i = 0; i < layout.arenas(); ++i) {
        for (float& value : tensors->GradientBuffer(i)) value = sum;
      }
    });
  }

  Input input_;
  const std::string endpoint_ = testing::UniqueLocalEndpoint();
  UniqueFd listener_ = testing::NewLocalSocket();
  std::unique_ptr<ClientLink> link_;
  std::optional<PacketSocket> socket_;
  UniqueFd to_worker_;
};

}  // namespace fuzz_local_client
}  // namespace muster::fuzz

FUZZ_TARGET(local_client) {
  muster::fuzz::SilenceLogs();
  muster::fuzz::fuzz_local_client::Play(muster::fuzz::Input(data, size)).Run();
  return 0;
}
