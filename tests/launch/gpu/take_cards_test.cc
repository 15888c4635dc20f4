// One job takes cards: which, what it sees under the lock, and what it says where it cannot.
#include <gmock/gmock.h>

#include <filesystem>

#include "common/base/error.h"
#include "tests/launch/gpu/gpu_fixture.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

std::vector<std::string> IndicesOf(const TakenCards& taken) {
  std::vector<std::string> indices;
  for (const Gpu& gpu : taken.cards) indices.push_back(gpu.index);
  return indices;
}

GpuSnapshot WithBusy(GpuSnapshot seen, std::initializer_list<size_t> busy) {
  for (const size_t card : busy) seen.gpus[card].processes = {{.pid = 1}};
  return seen;
}

class TakeCardsTest : public ::testing::Test {
 protected:
  TakenCards Take(std::vector<GpuSnapshot> looks, const CardWish& wish,
                  const TakeOptions& options = Patient()) {
    ScriptedProbe probe(std::move(looks));
    return TakeCards(probe, shared_.folder(), wish, options);
  }
  // What it says if it cannot.
  std::string Refusal(std::vector<GpuSnapshot> looks, const CardWish& wish, ExitCode code,
                      const TakeOptions& options = Patient()) {
    try {
      (void)Take(std::move(looks), wish, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      return error.what();
    }
    ADD_FAILURE() << "it took cards";
    return "";
  }

  SharedFolder shared_;
};

TEST_F(TakeCardsTest, IdleCardsOnly) {
  const TakenCards taken = Take({WithBusy(IdleCards(4), {0, 2})}, AnyOf(4, 2));
  EXPECT_THAT(IndicesOf(taken), ElementsAre("1", "3"));
  EXPECT_THAT(taken.locks, SizeIs(2));
  const std::vector<SeenTicket> tickets = ReadTickets(shared_.folder());
  ASSERT_THAT(tickets, SizeIs(1));
  EXPECT_EQ(tickets[0].text.state, TicketState::kHolding);
  EXPECT_EQ(tickets[0].text.cards, Names({1, 3}));
  EXPECT_EQ(tickets[0].text.pid, ::getpid());
}

TEST_F(TakeCardsTest, TakenCardsAreNobodyElses) {
  const TakenCards first = Take({IdleCards(3)}, AnyOf(3, 2));
  EXPECT_THAT(IndicesOf(first), ElementsAre("0", "1"));
  const TakenCards second = Take({IdleCards(3)}, AnyOf(3, 1));
  EXPECT_THAT(IndicesOf(second), ElementsAre("2"));
  EXPECT_THAT(Refusal({IdleCards(3)}, AnyOf(3, 1), ExitCode::kFailure),
              AllOf(HasSubstr("expected 1 of 3 cards"), HasSubstr("card 0: "),
                    HasSubstr("'s a test (pid " + std::to_string(::getpid())),
                    HasSubstr(", since "), HasSubstr("--wait")));
}

TEST_F(TakeCardsTest, WhatIsLetGoIsFreeAtOnce) {
  for (int i = 0; i < 3; ++i) EXPECT_THAT(Take({IdleCards(2)}, AnyOf(2, 2)).cards, SizeIs(2));
  EXPECT_THAT(ReadTickets(shared_.folder()), IsEmpty());
}

// Somebody who takes no lock has begun to compute between the first look and the lock.
TEST_F(TakeCardsTest, LooksAgainUnderTheLock) {
  ScriptedProbe probe({IdleCards(3), IdleCards(3), WithBusy(IdleCards(3), {0})});
  const TakenCards taken = TakeCards(probe, shared_.folder(), AnyOf(3, 1), Patient());
  EXPECT_THAT(IndicesOf(taken), ElementsAre("1"));
  // The lock of the card that was busy has been given back.
  EXPECT_THAT(IndicesOf(Take({IdleCards(3)}, {.pool = Names({0}), .named = true})),
              ElementsAre("0"));
}

TEST_F(TakeCardsTest, ACardThatGoesAwayUnderTheLockIsNotTaken) {
  EXPECT_THAT(Refusal({IdleCards(2), IdleCards(1)}, AnyOf(2, 2), ExitCode::kFailure),
              HasSubstr("gone"));
}

TEST_F(TakeCardsTest, NamedOnesInTheOrderOfTheirNames) {
  const TakenCards taken =
      Take({IdleCards(4)}, {.pool = Names({3, 0, 2}), .count = 3, .named = true});
  EXPECT_THAT(IndicesOf(taken), ElementsAre("3", "0", "2"));
  EXPECT_THAT(Refusal({WithBusy(IdleCards(4), {1})}, {.pool = Names({1}), .named = true},
                      ExitCode::kFailure),
              AllOf(HasSubstr("expected 1 card by name"), HasSubstr("card 1: "),
                    HasSubstr("computes on it"), Not(HasSubstr("card 0"))));
}

TEST_F(TakeCardsTest, TheBusierOneOfTwoLooksIsLast) {
  GpuSnapshot later = IdleCards(2);
  later.gpus[0].utilization = 70;
  EXPECT_THAT(IndicesOf(Take({IdleCards(2), later}, AnyOf(2, 1))), ElementsAre("1"));
}

TEST_F(TakeCardsTest, WaitsAndSaysForWhat) {
  std::vector<std::string> said;
  TakeOptions options = Patient(60);
  options.say = [&](const std::string& line) { said.push_back(line); };
  const TakenCards taken = Take({WithBusy(IdleCards(2), {0, 1}), WithBusy(IdleCards(2), {0, 1}),
                                 WithBusy(IdleCards(2), {0}), IdleCards(2)},
                                AnyOf(2, 2), options);
  EXPECT_THAT(taken.cards, SizeIs(2));
  ASSERT_FALSE(said.empty());
  EXPECT_THAT(said[0], AllOf(HasSubstr("Waiting for all 2 cards, 60 s at most"),
                             HasSubstr("\n  card 0: "), HasSubstr("computes on it")));
}

// A lock of a program that has no ticket, as of `flock FILE sleep 1000`. The process that took it
// may have ended, and a child that inherited the file has it.
TEST_F(TakeCardsTest, SaysWhoHasALockWithoutATicket) {
  const LockFolder folder = shared_.folder();
  auto lock = CardLock::Try(folder, CardName(0));
  ASSERT_TRUE(lock);
  const ForkedProcess holder([] {
    ::pause();
    return 0;
  });
  lock = std::nullopt;  // the child's copy stays
  const std::string pid = "(pid " + std::to_string(holder.pid()) + ")";
  std::vector<std::string> said;
  TakeOptions options = Patient();
  options.others_choose_s = 0.1;
  options.quiet_s = 0;
  options.say = [&](const std::string& line) { said.push_back(line); };
  EXPECT_THAT(Refusal({IdleCards(2)}, AnyOf(2, 2), ExitCode::kFailure, options),
              AllOf(HasSubstr("card 0: idle, but its lock is held by "), HasSubstr(pid),
                    HasSubstr("card 1: idle\n")));
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_THAT(said[0], HasSubstr(pid));
}

TEST_F(TakeCardsTest, AWaitHasItsEnd) {
  EXPECT_THAT(
      Refusal({WithBusy(IdleCards(2), {0})}, AnyOf(2, 2), ExitCode::kDeadline, Patient(0.05)),
      AllOf(HasSubstr("within"), HasSubstr("card 1: idle")));
  EXPECT_THAT(ReadTickets(shared_.folder()), IsEmpty());
}

TEST_F(TakeCardsTest, ASleepThatThrowsEndsIt) {
  TakeOptions options = Patient(60);
  options.sleep = [](double) { throw Error(ExitCode::kInterrupted, "stopped"); };
  EXPECT_EQ(Refusal({WithBusy(IdleCards(1), {0})}, AnyOf(1, 1), ExitCode::kInterrupted, options),
            "stopped");
  EXPECT_THAT(ReadTickets(shared_.folder()), IsEmpty());
}

// A cleaner of /tmp may take a lock's file away. Who comes next makes another one, and the job that
// looks at the first must not take it for the lock.
TEST_F(TakeCardsTest, ALockWhoseFileWasRemovedIsMadeAnew) {
  { const TakenCards taken = Take({IdleCards(1)}, AnyOf(1, 1)); }
  for (const auto& entry : std::filesystem::directory_iterator(shared_.path())) {
    std::filesystem::remove(entry.path());
  }
  const TakenCards first = Take({IdleCards(1)}, AnyOf(1, 1));
  EXPECT_FALSE(CardLock::Try(shared_.folder(), CardName(0)).has_value());
}

TEST_F(TakeCardsTest, WhatIsNoLockIsNotFollowed) {
  const std::string name = shared_.path() + "/muster-gpu-" + CardName(0) + ".lock";
  std::filesystem::create_symlink("/etc/passwd", name);
  EXPECT_THAT(Refusal({IdleCards(1)}, AnyOf(1, 1), ExitCode::kFailure), HasSubstr(name));
  std::filesystem::remove(name);
  ASSERT_EQ(::mkfifo(name.c_str(), 0666), 0);
  EXPECT_THAT(Refusal({IdleCards(1)}, AnyOf(1, 1), ExitCode::kFailure),
              HasSubstr("expected a file to lock"));
}

TEST_F(TakeCardsTest, AFolderThatIsNotSharedIsRefused) {
  TempDir own;
  EXPECT_THROW(LockFolder(own.string()), Error);
  EXPECT_THROW(LockFolder(own.string() + "/none"), Error);
}

}  // namespace
}  // namespace muster::testing
