// Several jobs, each in its own process, compete for the same GPUs.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "common/base/error.h"
#include "tests/cli/gpu/gpu_fixture.h"

namespace muster::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class CardQueueTest : public ::testing::Test {
 protected:
  TakenGpus Take(const GpuWish& wish, double wait_s = 0) {
    ScriptedProbe probe({IdleCards(8)});
    return TakeGpus(probe, shared_.folder(), wish, Patient(wait_s));
  }
  // A job that takes GPUs, creates `file`, and holds the GPUs until it is killed or `go` exists.
  std::function<int()> Job(const GpuWish& wish, const std::string& letter) {
    return [=, this] {
      const TakenGpus taken = Take(wish, 60);
      std::ofstream(Path("order"), std::ios::app) << letter << std::flush;
      while (!Exists("go-" + letter)) ::usleep(1000);
      return 0;
    };
  }
  std::string Path(const std::string& name) const { return files_.string() + "/" + name; }
  bool Exists(const std::string& name) const { return ::access(Path(name).c_str(), F_OK) == 0; }
  void Make(const std::string& name) { std::ofstream(Path(name)).flush(); }
  std::string Order() const {
    std::ifstream file(Path("order"));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  ::testing::AssertionResult OrderIs(const std::string& letters) const {
    return Eventually([&] { return Order() == letters; });
  }
  ::testing::AssertionResult Waiting(size_t jobs) const {
    return Eventually([&] {
      const std::vector<TicketText> tickets = ReadTickets(shared_.folder());
      return static_cast<size_t>(std::ranges::count_if(tickets, [](const TicketText& ticket) {
               return ticket.state == TicketState::kWaiting;
             })) == jobs;
    });
  }

  SharedFolder shared_;
  TempDir files_;
};

// Three jobs that each want all 8 GPUs are served in order.
TEST_F(CardQueueTest, WhoCameFirstIsFirst) {
  ForkedProcess first(Job(AnyOf(8, 8), "a"));
  ASSERT_TRUE(OrderIs("a"));
  ForkedProcess second(Job(AnyOf(8, 8), "b"));
  ASSERT_TRUE(Waiting(1));
  ForkedProcess third(Job(AnyOf(8, 8), "c"));
  ASSERT_TRUE(Waiting(2));
  Make("go-a");
  ASSERT_TRUE(OrderIs("ab"));
  Make("go-b");
  ASSERT_TRUE(OrderIs("abc"));
  Make("go-c");
  EXPECT_EQ(third.Wait(), 0);
}

// Otherwise a job that wants many GPUs could wait forever behind jobs that want few.
TEST_F(CardQueueTest, NobodyOvertakes) {
  ForkedProcess half(Job({.pool = Names({0, 1, 2, 3}), .count = 4, .named = true}, "a"));
  ASSERT_TRUE(OrderIs("a"));
  ForkedProcess large(Job(AnyOf(8, 8), "b"));
  ASSERT_TRUE(Waiting(1));
  try {
    (void)Take(AnyOf(8, 1));  // four are idle
    ADD_FAILURE() << "it overtook";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("ahead in the queue: "));
  }
  Make("go-a");
  ASSERT_TRUE(OrderIs("ab"));
}

TEST_F(CardQueueTest, JobsOfOtherCardsDoNotWaitForEachOther) {
  ForkedProcess holds(Job({.pool = Names({0, 1}), .count = 2, .named = true}, "a"));
  ASSERT_TRUE(OrderIs("a"));
  ForkedProcess waits(Job({.pool = Names({1, 2}), .count = 2, .named = true}, "b"));
  ASSERT_TRUE(Waiting(1));
  // 1 and 2 are reserved for the waiting job as soon as they are free; the others are not.
  EXPECT_THAT(Take(AnyOf(8, 5)).gpus, SizeIs(5));
  EXPECT_THROW((void)Take(AnyOf(8, 6)), Error);
}

// A stopped job (Ctrl-Z) cannot take its turn. The others pass it after a while.
TEST_F(CardQueueTest, WhoSleepsIsPassedBy) {
  ForkedProcess holds(Job({.pool = Names({0}), .named = true}, "a"));
  ASSERT_TRUE(OrderIs("a"));
  ForkedProcess sleeps(Job(AnyOf(8, 8), "b"));
  ASSERT_TRUE(Waiting(1));
  ::kill(sleeps.pid(), SIGSTOP);
  EXPECT_THROW((void)Take(AnyOf(8, 1)), Error);
  for (const TicketText& ticket : ReadTickets(shared_.folder())) {
    const timespec long_ago[2] = {{.tv_sec = std::time(nullptr) - 100},
                                  {.tv_sec = std::time(nullptr) - 100}};
    ASSERT_EQ(::utimensat(AT_FDCWD, shared_.folder().File(ticket.name).c_str(), long_ago, 0), 0);
  }
  EXPECT_THAT(Take(AnyOf(8, 1)).gpus, SizeIs(1));
}

// Whoever inherits the locks holds them.
TEST_F(CardQueueTest, ALockHoldsAsLongAsAWorkerLives) {
  ForkedProcess launcher([this] {
    const TakenGpus taken = Take(AnyOf(8, 8));
    const pid_t worker = ::fork();
    if (worker == 0) {
      for (;;) ::pause();
    }
    std::ofstream(Path("worker.new")) << worker << std::flush;
    std::rename(Path("worker.new").c_str(), Path("worker").c_str());
    for (;;) ::pause();
    return 0;
  });
  ASSERT_TRUE(Eventually([&] { return Exists("worker"); }));
  pid_t worker = 0;
  std::ifstream(Path("worker")) >> worker;
  launcher.Kill();
  EXPECT_THROW((void)Take(AnyOf(8, 1)), Error);
  EXPECT_THAT(ReadTickets(shared_.folder()), SizeIs(1));
  ::kill(worker, SIGKILL);
  EXPECT_TRUE(Eventually([&] { return shared_.folder().LockGpu(CardName(0)).valid(); }));
  EXPECT_THAT(Take(AnyOf(8, 8)).gpus, SizeIs(8));
}

// Kills it while it makes its ticket, chooses, locks or releases.
TEST_F(CardQueueTest, KilledAtAnyMomentItLeavesNoLock) {
  std::mt19937 random(1);
  for (int round = 0; round < 150; ++round) {
    ForkedProcess job([this] {
      for (;;) (void)Take(AnyOf(8, 5));
      return 0;
    });
    ::usleep(random() % 4000);
    job.Kill();
    ASSERT_THAT(Take(AnyOf(8, 8)).gpus, SizeIs(8)) << "round " << round;
  }
  // Only the GPUs' lock files remain, because the jobs of a user clean up after one another.
  for (const TicketText& ticket : ReadTickets(shared_.folder())) ADD_FAILURE() << ticket.name;
}

// Two jobs of four GPUs fit at the same time.
TEST_F(CardQueueTest, AThousandPairsAtTheSameMomentShareNoGpu) {
  const auto job = [this] {
    for (int round = 0; round < 1000; ++round) {
      const TakenGpus taken = Take(AnyOf(8, 4));
      std::vector<std::string> held;
      for (const Gpu& gpu : taken.gpus) {
        held.push_back(Path("held-" + gpu.index));
        const UniqueFd file(::open(held.back().c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0600));
        if (!file.valid()) return 1;
      }
      ::sched_yield();
      for (const std::string& path : held) ::unlink(path.c_str());
    }
    return 0;
  };
  ForkedProcess one(job), other(job);
  EXPECT_EQ(one.Wait(), 0);
  EXPECT_EQ(other.Wait(), 0);
}

// Neither blocks the other forever, in whatever order they lock.
TEST_F(CardQueueTest, OfTwoThatNameTheSameCardsOneGetsThem) {
  for (int round = 0; round < 100; ++round) {
    const auto job = [this, round](const GpuWish& wish) {
      return [this, round, wish] {
        while (!Exists("begin")) ::sched_yield();
        try {
          const TakenGpus taken = Take(wish);
          Make("taken-" + std::to_string(round));
          for (;;) ::pause();
        } catch (const Error&) {
        }
        return 1;
      };
    };
    std::filesystem::remove(Path("begin"));
    ForkedProcess up(job({.pool = Names({0, 1, 2, 3}), .count = 4, .named = true}));
    ForkedProcess down(job({.pool = Names({3, 2, 1, 0}), .count = 4, .named = true}));
    Make("begin");
    ASSERT_TRUE(Eventually([&] { return Exists("taken-" + std::to_string(round)); }))
        << "round " << round;
  }
}

// Files created by one user serve all, even with fs.protected_regular set.
TEST_F(CardQueueTest, UsersRespectOneAnother) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to act as two users";
  ::chmod(files_.string().c_str(), 0777);
  const auto as = [&](uid_t user, const std::function<int()>& job) {
    return [=] {
      ::umask(077);
      if (::setgroups(0, nullptr) != 0 || ::setgid(user) != 0 || ::setuid(user) != 0) return 98;
      return job();
    };
  };
  constexpr uid_t kAnna = 65533, kBela = 65532;
  ForkedProcess anna(as(kAnna, Job(AnyOf(8, 5), "a")));
  ASSERT_TRUE(Eventually([&] {
    return !ReadTickets(shared_.folder()).empty() &&
           ReadTickets(shared_.folder())[0].state == TicketState::kHolding;
  }));
  EXPECT_EQ(ReadTickets(shared_.folder())[0].user, kAnna);
  EXPECT_EQ(ForkedProcess(as(kBela, [this] { return Take(AnyOf(8, 3)).gpus.size() == 3 ? 0 : 1; }))
                .Wait(),
            0);
  EXPECT_EQ(ForkedProcess(as(kBela,
                             [this] {
                               try {
                                 (void)Take(AnyOf(8, 4));
                               } catch (const Error& error) {
                                 return std::string(error.what()).find("user 65533's a test") ==
                                        std::string::npos;
                               }
                               return true;
                             }))
                .Wait(),
            0);
  anna.Kill();
  // Anna's files exist, and only she may write or remove them.
  EXPECT_EQ(ForkedProcess(as(kBela, [this] { return Take(AnyOf(8, 8)).gpus.size() == 8 ? 0 : 1; }))
                .Wait(),
            0);
  EXPECT_THAT(Take(AnyOf(8, 8)).gpus, SizeIs(8));
}

}  // namespace
}  // namespace muster::testing
