#include "worker/client/wire_buffers.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <semaphore>
#include <thread>

#include "common/base/fd.h"

namespace muster {
namespace {

struct Woken {
  EventFd bell;
  WireBuffers buffers{100, bell};

  bool Within(int milliseconds) const {
    pollfd poll{bell.get(), POLLIN, 0};
    if (::poll(&poll, 1, milliseconds) != 1) return false;
    bell.Clear();
    return true;
  }
};

TEST(WireBuffers, HandsOutEachOnce) {
  Woken woken;
  std::array<WireBuffers::Buffer*, WireBuffers::kCount> taken;
  for (size_t i = 0; i < taken.size(); ++i) {
    taken[i] = woken.buffers.Take();
    ASSERT_NE(taken[i], nullptr);
    EXPECT_EQ(taken[i]->values().size(), 100u);
    for (size_t j = 0; j < i; ++j) EXPECT_NE(taken[i], taken[j]);
  }
  EXPECT_EQ(woken.buffers.Take(), nullptr);
  taken[3]->GiveBack();
  EXPECT_EQ(woken.buffers.Take(), taken[3]);
}

TEST(WireBuffers, WakesWhoeverWasRefused) {
  Woken woken;
  std::array<WireBuffers::Buffer*, WireBuffers::kCount> taken;
  for (auto& buffer : taken) buffer = woken.buffers.Take();
  taken[0]->GiveBack();
  EXPECT_FALSE(woken.Within(0)) << "no request was refused";
  (void)woken.buffers.Take();
  EXPECT_EQ(woken.buffers.Take(), nullptr);
  taken[1]->GiveBack();
  EXPECT_TRUE(woken.Within(0));
  taken[2]->GiveBack();
  EXPECT_FALSE(woken.Within(0)) << "notified already";
}

TEST(WireBuffers, NoWakeUpIsLost) {
  constexpr int kRounds = 20000;
  Woken woken;
  std::array<std::atomic<WireBuffers::Buffer*>, 1024> ring{};
  std::counting_semaphore<1 << 20> filled(0);
  std::thread other([&] {
    for (int i = 0; i < kRounds; ++i) {
      filled.acquire();
      ring[i % ring.size()].exchange(nullptr)->GiveBack();
    }
  });
  for (int i = 0; i < kRounds;) {
    WireBuffers::Buffer* const buffer = woken.buffers.Take();
    if (buffer == nullptr) {
      ASSERT_TRUE(woken.Within(20000)) << "at round " << i;
      continue;
    }
    ring[i++ % ring.size()] = buffer;
    filled.release();
  }
  other.join();
}

}  // namespace
}  // namespace muster
