// One job takes GPUs: which ones, the second check under the lock, and errors.
#include <gmock/gmock.h>

#include <filesystem>

#include "common/base/error.h"
#include "tests/cli/gpu/gpu_fixture.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

std::vector<std::string> IndicesOf(const TakenGpus& taken) {
  std::vector<std::string> indices;
  for (const Gpu& gpu : taken.gpus) indices.push_back(gpu.index);
  return indices;
}

GpuSnapshot WithBusy(GpuSnapshot seen, std::initializer_list<size_t> busy) {
  for (const size_t card : busy) seen.gpus[card].processes = {{.pid = 1}};
  return seen;
}

class TakeCardsTest : public ::testing::Test {
 protected:
  TakenGpus Take(std::vector<GpuSnapshot> looks, const GpuWish& wish,
                 const TakeOptions& options = Patient()) {
    ScriptedProbe probe(std::move(looks));
    return TakeGpus(probe, shared_.folder(), wish, options);
  }
  // Returns the error.
  std::string Refusal(std::vector<GpuSnapshot> looks, const GpuWish& wish, ExitCode code,
                      const TakeOptions& options = Patient()) {
    try {
      (void)Take(std::move(looks), wish, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      return error.what();
    }
    ADD_FAILURE() << "it took GPUs";
    return "";
  }

  SharedFolder shared_;
};

TEST_F(TakeCardsTest, IdleCardsOnly) {
  const TakenGpus taken = Take({WithBusy(IdleCards(4), {0, 2})}, AnyOf(4, 2));
  EXPECT_THAT(IndicesOf(taken), ElementsAre("1", "3"));
  EXPECT_THAT(taken.locks, SizeIs(2));
  const std::vector<TicketText> tickets = ReadTickets(shared_.folder());
  ASSERT_THAT(tickets, SizeIs(1));
  EXPECT_EQ(tickets[0].state, TicketState::kHolding);
  EXPECT_EQ(tickets[0].gpus, Names({1, 3}));
  EXPECT_EQ(tickets[0].pid, ::getpid());
}

TEST_F(TakeCardsTest, TakenCardsAreNobodyElses) {
  const TakenGpus first = Take({IdleCards(3)}, AnyOf(3, 2));
  EXPECT_THAT(IndicesOf(first), ElementsAre("0", "1"));
  const TakenGpus second = Take({IdleCards(3)}, AnyOf(3, 1));
  EXPECT_THAT(IndicesOf(second), ElementsAre("2"));
  EXPECT_THAT(Refusal({IdleCards(3)}, AnyOf(3, 1), ExitCode::kFailure),
              AllOf(HasSubstr("expected 1 of 3 GPUs"), HasSubstr("GPU 0: "),
                    HasSubstr("'s a test (pid " + std::to_string(::getpid())),
                    HasSubstr(", since "), HasSubstr("--wait")));
}

// A process that ignores the locks started computing between the first check and the lock.
TEST_F(TakeCardsTest, LooksAgainUnderTheLock) {
  ScriptedProbe probe({IdleCards(3), WithBusy(IdleCards(3), {0})});
  const TakenGpus taken = TakeGpus(probe, shared_.folder(), AnyOf(3, 1), Patient());
  EXPECT_THAT(IndicesOf(taken), ElementsAre("1"));
  // The lock of the busy GPU has been released.
  EXPECT_THAT(IndicesOf(Take({IdleCards(3)}, {.pool = Names({0}), .named = true})),
              ElementsAre("0"));
}

TEST_F(TakeCardsTest, ACardThatGoesAwayUnderTheLockIsNotTaken) {
  EXPECT_THAT(Refusal({IdleCards(2), IdleCards(1)}, AnyOf(2, 2), ExitCode::kFailure),
              HasSubstr("gone"));
}

TEST_F(TakeCardsTest, NamedOnesInTheOrderOfTheirNames) {
  const TakenGpus taken =
      Take({IdleCards(4)}, {.pool = Names({3, 0, 2}), .count = 3, .named = true});
  EXPECT_THAT(IndicesOf(taken), ElementsAre("3", "0", "2"));
  EXPECT_THAT(Refusal({WithBusy(IdleCards(4), {1})}, {.pool = Names({1}), .named = true},
                      ExitCode::kFailure),
              AllOf(HasSubstr("expected 1 named GPU"), HasSubstr("GPU 1: "),
                    HasSubstr("computes on it"), Not(HasSubstr("GPU 0"))));
}

TEST_F(TakeCardsTest, WaitsAndSaysForWhat) {
  std::vector<std::string> said;
  TakeOptions options = Patient(60);
  options.say = [&](const std::string& line) { said.push_back(line); };
  const TakenGpus taken = Take({WithBusy(IdleCards(2), {0, 1}), WithBusy(IdleCards(2), {0, 1}),
                                WithBusy(IdleCards(2), {0}), IdleCards(2)},
                               AnyOf(2, 2), options);
  EXPECT_THAT(taken.gpus, SizeIs(2));
  ASSERT_FALSE(said.empty());
  EXPECT_THAT(said[0], AllOf(HasSubstr("Waiting for all 2 GPUs, at most 60 s"),
                             HasSubstr("\n  GPU 0: "), HasSubstr("computes on it")));
}

// Another program holds the lock without a ticket, like `flock FILE sleep 1000`. The process that
// took it may have ended, with a child that inherited the file.
TEST_F(TakeCardsTest, SaysWhoHasALockWithoutATicket) {
  const LockFolder folder = shared_.folder();
  GpuLock lock = folder.LockGpu(CardName(0));
  ASSERT_TRUE(lock.valid());
  const ForkedProcess holder([] {
    ::pause();
    return 0;
  });
  lock = {};  // the child still holds its copy
  const std::string pid = "(pid " + std::to_string(holder.pid()) + ")";
  std::vector<std::string> said;
  TakeOptions options = Patient();
  options.others_choose_s = 0.1;
  options.quiet_s = 0;
  options.say = [&](const std::string& line) { said.push_back(line); };
  EXPECT_THAT(Refusal({IdleCards(2)}, AnyOf(2, 2), ExitCode::kFailure, options),
              AllOf(HasSubstr("GPU 0: idle, but its lock is held by "), HasSubstr(pid),
                    HasSubstr("GPU 1: idle\n")));
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_THAT(said[0], HasSubstr(pid));
}

// Someone cleans up /run/lock: the lock file, or all files.
TEST_F(TakeCardsTest, GpusWhoseFilesAreRemovedStayTaken) {
  const TakenGpus taken = Take({IdleCards(1)}, AnyOf(1, 1));
  const std::string pid = "(pid " + std::to_string(::getpid());
  std::filesystem::remove(shared_.path() + "/muster-gpu-" + CardName(0) + ".lock");
  EXPECT_THAT(Refusal({IdleCards(1)}, AnyOf(1, 1), ExitCode::kFailure),
              AllOf(HasSubstr("'s a test " + pid), HasSubstr(", since ")));
  for (const auto& file : std::filesystem::directory_iterator(shared_.path())) {
    std::filesystem::remove(file.path());
  }
  TakeOptions options = Patient();
  options.others_choose_s = 0.1;
  EXPECT_THAT(Refusal({IdleCards(1)}, AnyOf(1, 1), ExitCode::kFailure, options),
              AllOf(HasSubstr("GPU 0: idle, but its lock is held by "), HasSubstr(pid + ")")));
}

TEST_F(TakeCardsTest, ATicketThatIsBeingWrittenHoldsNothingYet) {
  const LockFolder folder = shared_.folder();
  const UniqueFd ticket =
      folder.Make("muster-gpu-job-1", "H\npid 1\nwants 1\nwhat job\ncard GPU-a\ncard GPU-b\n");
  const std::vector<TicketText> tickets = ReadTickets(folder);
  ASSERT_THAT(tickets, SizeIs(1));
  EXPECT_EQ(tickets[0].state, TicketState::kTaking);
}

TEST_F(TakeCardsTest, AWaitHasItsEnd) {
  EXPECT_THAT(
      Refusal({WithBusy(IdleCards(2), {0})}, AnyOf(2, 2), ExitCode::kDeadline, Patient(0.05)),
      AllOf(HasSubstr("within"), HasSubstr("GPU 1: idle")));
  EXPECT_THAT(ReadTickets(shared_.folder()), IsEmpty());
}

TEST_F(TakeCardsTest, WhatIsNoLockIsNotFollowed) {
  const std::string name = shared_.path() + "/muster-gpu-" + CardName(0) + ".lock";
  std::filesystem::create_symlink("/etc/passwd", name);
  EXPECT_THAT(Refusal({IdleCards(1)}, AnyOf(1, 1), ExitCode::kFailure), HasSubstr(name));
  std::filesystem::remove(name);
  ASSERT_EQ(::mkfifo(name.c_str(), 0666), 0);
  EXPECT_THAT(Refusal({IdleCards(1)}, AnyOf(1, 1), ExitCode::kFailure),
              HasSubstr("expected a regular file to lock"));
}

TEST_F(TakeCardsTest, AFolderThatIsNotSharedIsRefused) {
  TempDir own;
  EXPECT_THROW(LockFolder(own.string()), Error);
  EXPECT_THROW(LockFolder(own.string() + "/none"), Error);
}

}  // namespace
}  // namespace muster::testing
