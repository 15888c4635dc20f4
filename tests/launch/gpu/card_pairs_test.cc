// Two jobs want cards at the same moment, a thousand times.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <bit>
#include <memory>
#include <optional>

#include "common/base/error.h"
#include "tests/launch/gpu/gpu_fixture.h"

namespace muster::testing {
namespace {

// What two processes do in each round, at the same moment: take cards, say which, and let them go
// when both have said it.
class PairedTaker {
 public:
  PairedTaker(const LockFolder& folder) {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_), 0);
    process_ = std::make_unique<ForkedProcess>([this, folder] { return Serve(folder); });
    ::close(ends_[1]);
  }
  ~PairedTaker() { ::close(ends_[0]); }

  void Begin(unsigned char count) const { Write(ends_[0], count); }
  unsigned Taken() const { return Read(ends_[0]); }
  void Release() const { Write(ends_[0], 0); }
  void AwaitReleased() const { (void)Read(ends_[0]); }

 private:
  static void Write(int fd, unsigned char value) { EXPECT_EQ(::write(fd, &value, 1), 1); }
  static unsigned Read(int fd) {
    unsigned char value = 0;
    return ::read(fd, &value, 1) == 1 ? value : 256;
  }
  int Serve(const LockFolder& folder) const {
    ::close(ends_[0]);
    ScriptedProbe probe({IdleCards(8)});
    for (unsigned count; (count = Read(ends_[1])) != 256; Write(ends_[1], 0)) {
      std::optional<TakenCards> taken;
      unsigned mask = 0;
      try {
        taken.emplace(TakeCards(probe, folder, AnyOf(8, count), Patient()));
        for (const Gpu& gpu : taken->cards) mask |= 1u << std::stoi(gpu.index);
      } catch (const Error&) {
      }
      Write(ends_[1], static_cast<unsigned char>(mask));
      (void)Read(ends_[1]);  // until both have said it
    }
    return 0;
  }

  int ends_[2];
  std::unique_ptr<ForkedProcess> process_;
};

TEST(CardPairsTest, AThousandAtTheSameMomentShareNoCard) {
  const SharedFolder shared_folder;
  const PairedTaker one(shared_folder.folder()), other(shared_folder.folder());
  int shared_cards = 0;
  for (int round = 0; round < 1000; ++round) {
    // Four and four fit; of five and five one job gets its cards, and never none.
    const unsigned char count = round % 2 == 0 ? 4 : 5;
    one.Begin(count);
    other.Begin(count);
    const unsigned a = one.Taken(), b = other.Taken();
    shared_cards += std::popcount(a & b);
    if (count == 4) {
      EXPECT_EQ(a | b, 255u) << "round " << round;
    } else {
      EXPECT_EQ(std::popcount(a | b), 5) << "round " << round;
    }
    for (const PairedTaker* taker : {&one, &other}) taker->Release();
    for (const PairedTaker* taker : {&one, &other}) taker->AwaitReleased();
  }
  EXPECT_EQ(shared_cards, 0);
}

}  // namespace
}  // namespace muster::testing
