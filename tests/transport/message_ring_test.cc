// Messages through memory: wrapping, a full ring, messages larger than the ring, sleep, and
// garbage.
#include "common/transport/local/message_ring.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <semaphore>
#include <thread>

namespace muster::testing {
namespace {

using Status = MessageRing::Status;

// Both ends of a connection in one process, in memory that ThreadSanitizer observes.
struct Pair {
  std::unique_ptr<RingMemory> a_memory = std::make_unique<RingMemory>();
  std::unique_ptr<RingMemory> b_memory = std::make_unique<RingMemory>();
  MessageRing a{*a_memory, *b_memory};
  MessageRing b{*b_memory, *a_memory};
};

std::string Pattern(size_t size, int seed) {
  std::string bytes(size, 0);
  for (size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<char>(i * 31 + static_cast<size_t>(seed));
  return bytes;
}

// Writes the whole message if there is space.
bool Put(MessageRing& ring, const std::string& message) {
  const bool all = ring.Write(message) == 4 + message.size();
  ring.Publish();
  return all;
}

TEST(MessageRing, KeepsOrderWhileItWraps) {
  Pair pair;
  std::mt19937 random(1);
  std::string message;
  for (int i = 0; i < 5000; ++i) {  // some 180 times around
    const std::string first = Pattern(random() % 4000, i), second = Pattern(random() % 300, i + 1);
    ASSERT_TRUE(Put(pair.a, first));
    ASSERT_TRUE(Put(pair.a, second));
    ASSERT_EQ(pair.b.Take(message), Status::kMessage);
    ASSERT_EQ(message, first);
    ASSERT_EQ(pair.b.Take(message), Status::kMessage);
    ASSERT_EQ(message, second);
    ASSERT_EQ(pair.b.Take(message), Status::kNothing);
  }
}

TEST(MessageRing, NothingIsSeenBeforePublish) {
  Pair pair;
  std::string message;
  pair.a.Write("one");
  EXPECT_FALSE(pair.b.Pending());
  EXPECT_EQ(pair.b.Take(message), Status::kNothing);
  pair.a.Publish();
  EXPECT_TRUE(pair.b.Pending());
  EXPECT_EQ(pair.b.Take(message), Status::kMessage);
  EXPECT_EQ(message, "one");
  EXPECT_FALSE(pair.b.Pending());
}

TEST(MessageRing, AFullRingTakesNoMore) {
  Pair pair;
  const std::string kilobyte = Pattern(1020, 7);  // 1024 with its length
  for (size_t i = 0; i < RingMemory::kBytes / 1024; ++i) ASSERT_TRUE(Put(pair.a, kilobyte));
  EXPECT_EQ(pair.a.Write("more"), 0u);
  EXPECT_FALSE(pair.a.WantRoom(true));
  std::string message;
  EXPECT_EQ(pair.b.Take(message), Status::kMessage);
  EXPECT_EQ(message, kilobyte);
  EXPECT_TRUE(pair.a.WantRoom(true));
  EXPECT_TRUE(Put(pair.a, kilobyte));
  EXPECT_EQ(pair.a.Write("more"), 0u);
}

TEST(MessageRing, AMessageMayBeLargerThanTheRing) {
  Pair pair;
  const std::string large = Pattern(1000003, 3);
  std::string message;
  size_t begin = 0;
  Status status = Status::kNothing;
  for (int pieces = 0; status == Status::kNothing; ++pieces) {
    ASSERT_LT(pieces, 20);
    begin = pair.a.Write(large, begin);
    pair.a.Publish();
    status = pair.b.Take(message);
  }
  EXPECT_EQ(status, Status::kMessage);
  EXPECT_EQ(begin, 4 + large.size());
  EXPECT_EQ(message, large);
}

TEST(MessageRing, TheBellIsForSleepersOnly) {
  Pair pair;
  ASSERT_TRUE(Put(pair.a, "x"));
  EXPECT_FALSE(pair.a.MustRing(MessageRing::Reason::kPublished));
  for (int sleep = 0; sleep < 3; ++sleep) {
    pair.b.PrepareToSleep();
    EXPECT_FALSE(pair.a.MustRing(MessageRing::Reason::kTaken)) << "b does not wait for space";
    EXPECT_TRUE(pair.a.MustRing(MessageRing::Reason::kPublished));
    EXPECT_FALSE(pair.a.MustRing(MessageRing::Reason::kPublished)) << "it has been rung already";
    if (sleep == 1) continue;  // sleeps again before the other side has seen it awake
    pair.b.WakeUp();
    EXPECT_FALSE(pair.a.MustRing(MessageRing::Reason::kPublished));
  }
  pair.b.WantRoom(true);
  pair.b.PrepareToSleep();
  EXPECT_TRUE(pair.a.MustRing(MessageRing::Reason::kTaken));
}

// Every byte of many messages of all sizes, through a ring that is mostly full while the other side
// reads.
TEST(MessageRing, TwoThreadsSeeTheSameBytes) {
  Pair pair;
  constexpr int kMessages = 3000;
  const auto size_of = [](int i) { return static_cast<size_t>(i * 7919 % 3001); };
  std::thread sender([&] {
    for (int i = 0; i < kMessages; ++i) {
      const std::string message = Pattern(size_of(i), i);
      for (size_t begin = 0; begin < 4 + message.size();) {
        begin = pair.a.Write(message, begin);
        pair.a.Publish();
        if (begin < 4 + message.size()) std::this_thread::yield();
      }
    }
  });
  std::string message;
  int wrong = 0;
  for (int i = 0; i < kMessages;) {
    if (pair.b.Take(message) != Status::kMessage) {
      std::this_thread::yield();
      continue;
    }
    wrong += message != Pattern(size_of(i), i);
    ++i;
  }
  sender.join();
  EXPECT_EQ(wrong, 0);
}

// One end that sleeps whenever it finds nothing. The bell is rung only if MustRing says so.
struct Sleeper {
  MessageRing& ring;
  std::counting_semaphore<1 << 20>& my_bell;
  std::counting_semaphore<1 << 20>& other_bell;

  bool Send(const std::string& message) {
    for (size_t begin = 0; begin < 4 + message.size();) {
      begin = ring.Write(message, begin);
      ring.Publish();
      if (ring.MustRing(MessageRing::Reason::kPublished)) other_bell.release();
      if (begin == 4 + message.size() || ring.WantRoom(true)) continue;
      ring.PrepareToSleep();
      if (!ring.WantRoom(true) && !my_bell.try_acquire_for(std::chrono::seconds(20))) return false;
      ring.WakeUp();
    }
    ring.WantRoom(false);
    return true;
  }
  bool Receive(std::string& message) {
    for (;;) {
      const Status status = ring.Take(message);
      if (status != Status::kNothing) return status == Status::kMessage;
      if (ring.MustRing(MessageRing::Reason::kTaken)) other_bell.release();
      ring.PrepareToSleep();
      if (!ring.Pending() && !my_bell.try_acquire_for(std::chrono::seconds(20))) return false;
      ring.WakeUp();
    }
  }
};

TEST(MessageRing, NoWakeUpIsLost) {
  Pair pair;
  std::counting_semaphore<1 << 20> a_bell(0), b_bell(0);
  Sleeper a{pair.a, a_bell, b_bell}, b{pair.b, b_bell, a_bell};
  std::thread echo([&] {
    std::string message;
    while (b.Receive(message) && message != "end" && b.Send(message)) {
    }
  });
  // As many rounds as a busy machine can do, where each costs time slices of others.
  constexpr int kRounds = 20000;
  const auto enough = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  std::string message;
  for (int i = 0; i < kRounds && std::chrono::steady_clock::now() < enough; ++i) {
    const bool came_back = a.Send(std::to_string(i)) && a.Receive(message);
    EXPECT_TRUE(came_back) << "slept for 20 s with a message in the ring";
    if (!came_back) break;
    EXPECT_EQ(message, std::to_string(i));
  }
  EXPECT_TRUE(a.Send("end"));
  echo.join();
}

TEST(MessageRing, NoRoomIsMissed) {
  Pair pair;
  std::counting_semaphore<1 << 20> a_bell(0), b_bell(0);
  Sleeper a{pair.a, a_bell, b_bell}, b{pair.b, b_bell, a_bell};
  constexpr int kMessages = 300;
  std::thread sender([&] {
    for (int i = 0; i < kMessages; ++i) {
      if (!a.Send(Pattern(100000, i))) return;
    }
  });
  std::string message;
  int i = 0;
  while (i < kMessages && b.Receive(message) && message == Pattern(100000, i)) ++i;
  EXPECT_EQ(i, kMessages);
  sender.join();
}

TEST(MessageRing, CountsThatCannotBeBreakIt) {
  std::string message;
  for (const uint64_t lie : {uint64_t{RingMemory::kBytes + 1}, ~uint64_t{0}, uint64_t{2}}) {
    Pair pair;
    pair.a_memory->written = lie;
    EXPECT_EQ(pair.b.Take(message), Status::kBroken) << lie;
    pair.a_memory->written = 0;
    EXPECT_EQ(pair.b.Take(message), Status::kBroken) << "the ring stays broken";
  }
  Pair backwards;
  ASSERT_TRUE(Put(backwards.a, "hello"));
  ASSERT_EQ(backwards.b.Take(message), Status::kMessage);
  backwards.a_memory->written = 4;
  EXPECT_EQ(backwards.b.Take(message), Status::kBroken);
  Pair long_one;
  const uint32_t length = MessageRing::kMaxMessageBytes + 1;
  std::memcpy(long_one.a_memory->ring, &length, sizeof length);
  long_one.a_memory->written = 100;
  EXPECT_EQ(long_one.b.Take(message), Status::kBroken);
}

TEST(MessageRing, AReaderThatTookWhatNobodyWroteBreaksIt) {
  Pair pair;
  pair.b_memory->taken = 1000;
  EXPECT_EQ(pair.a.Write(Pattern(RingMemory::kBytes, 1)), 0u);
  EXPECT_TRUE(pair.a.Pending()) << "so that the error is noticed";
  std::string message;
  EXPECT_EQ(pair.a.Take(message), Status::kBroken);
}

// Random bytes, counts and doorbells lead to messages or a broken ring, but not to a crash.
TEST(MessageRing, SurvivesRandomMemory) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 300; ++i) {
    Pair pair;
    for (size_t at = 0; at < RingMemory::kBytes; at += 8) {
      const uint64_t word = random() & (i % 2 == 0 ? ~uint64_t{0} : 0x000000ff000000ff);
      std::memcpy(pair.a_memory->ring + at, &word, sizeof word);
    }
    std::string message;
    for (int turn = 0; turn < 20; ++turn) {
      pair.a_memory->written = pair.a_memory->written + random() % 8000;
      pair.a_memory->taken = random() % (turn + 1) * 1000;
      pair.a_memory->doorbell = static_cast<uint32_t>(random());
      pair.a_memory->wants_room = static_cast<uint32_t>(random());
      for (int taken = 0; pair.b.Take(message) == Status::kMessage && taken < 10000; ++taken) {
        ASSERT_LE(message.size(), MessageRing::kMaxMessageBytes);
      }
      ASSERT_LE(pair.b.Write(Pattern(5000, turn)), 5004u);
      pair.b.Publish();
      (void)pair.b.MustRing(MessageRing::Reason::kPublished);
    }
  }
}

}  // namespace
}  // namespace muster::testing
