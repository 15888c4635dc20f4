// Algorithms that are chosen by timing: one worker chooses, the server keeps the choice, and every
// worker gets it, now and later, whoever is lost.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <future>

#include "common/base/error.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/link/protocol.h"
#include "tests/job/run_dirs.h"
#include "tests/job/test_job.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Choice = std::optional<std::string>;

class TuningJob : public RunDirs {
 protected:
  static std::unique_ptr<Client> Join(const TestJob& job, uint32_t rank,
                                      const std::string& arithmetic = "a card", bool tunes = true) {
    ClientOptions options = job.OptionsFor(rank);
    options.hello.set_tunes(tunes);
    options.hello.set_arithmetic(arithmetic);
    return std::make_unique<Client>(std::move(options));
  }
  static std::future<std::unique_ptr<Client>> JoinSoon(const TestJob& job, uint32_t rank) {
    return std::async(std::launch::async, [&job, rank] { return Join(job, rank); });
  }
  // To the end of the run.
  static void Train(TestJob& job, std::vector<std::unique_ptr<Client>> clients) {
    std::vector<std::future<void>> workers;
    for (auto& client : clients) {
      workers.push_back(std::async(std::launch::async, [&job, client = std::move(client)] {
        (void)RunWorker(*client, {.gradient = Rough}, job.graph().arena_floats(), client->rank());
      }));
    }
    for (auto& worker : workers) worker.get();
  }
  static config::Config Config(uint32_t workers, const std::string& settings = "") {
    return With(SmallConfig(workers, 4), settings);
  }
};

TEST_F(TuningJob, OneChoosesAndAllGetTheChoice) {
  TestJob job(Config(3));
  auto second = JoinSoon(job, 1), third = JoinSoon(job, 2);
  std::vector<std::unique_ptr<Client>> clients;
  clients.push_back(Join(job, 0));
  clients.push_back(second.get());
  clients.push_back(third.get());
  EXPECT_EQ(clients[0]->AwaitTuning(), Choice());
  clients[0]->ReportTuning("the choice");
  for (auto& client : clients) EXPECT_EQ(client->AwaitTuning(), "the choice");
  Train(job, std::move(clients));
  EXPECT_EQ(job.Finish().dropped_messages, 0u);
}

TEST_F(TuningJob, WhoDoesNotTuneIsToldNothing) {
  TestJob job(Config(1));
  std::vector<std::unique_ptr<Client>> clients;
  clients.push_back(Join(job, 0, "a processor", false));
  Train(job, std::move(clients));
  EXPECT_EQ(job.Finish().steps, job.config().run().steps());
}

// It is lost while it times: another one does, and who comes in its place gets that choice.
TEST_F(TuningJob, IfTheTimingWorkerIsLostAnotherOneChooses) {
  TestJob job(Config(2, "cluster { on_lost_worker: REPLACE }"));
  auto second = JoinSoon(job, 1);
  std::unique_ptr<Client> first = Join(job, 0);
  std::vector<std::unique_ptr<Client>> clients;
  clients.push_back(second.get());
  EXPECT_EQ(first->AwaitTuning(), Choice());
  first.reset();
  EXPECT_EQ(clients[0]->AwaitTuning(), Choice());
  clients[0]->ReportTuning("the second one's choice");
  EXPECT_EQ(clients[0]->AwaitTuning(), "the second one's choice");
  clients.push_back(Join(job, 0));
  EXPECT_EQ(clients[1]->AwaitTuning(), "the second one's choice");
  Train(job, std::move(clients));
  EXPECT_EQ(job.Finish().dropped_messages, 0u);
}

// Alone: whoever comes next chooses.
TEST_F(TuningJob, IfAllAreLostTheNextOneChooses) {
  TestJob job(Config(1, "cluster { on_lost_worker: REPLACE }"));
  std::unique_ptr<Client> first = Join(job, 0);
  EXPECT_EQ(first->AwaitTuning(), Choice());
  first.reset();
  std::vector<std::unique_ptr<Client>> clients;
  // Until the server has noticed, the seat is taken.
  while (clients.empty()) {
    try {
      clients.push_back(Join(job, 0));
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ExitCode::kRefused) << error.what();
    }
  }
  EXPECT_EQ(clients[0]->AwaitTuning(), Choice());
  clients[0]->ReportTuning("x");
  EXPECT_EQ(clients[0]->AwaitTuning(), "x");
  Train(job, std::move(clients));
  (void)job.Finish();
}

// One that the start would not have waited for, and that comes when the loss has been noticed.
TEST_F(TuningJob, IfAllAreLostOneBeyondTheFirstOnesChooses) {
  TestJob job(Config(1, "cluster { on_lost_worker: REPLACE max_workers: 2 }"));
  std::unique_ptr<Client> first = Join(job, 0);
  EXPECT_EQ(first->AwaitTuning(), Choice());
  first.reset();
  std::string why = "rank 0 is taken";
  while (why.find("rank 0 is taken") != std::string::npos) {
    try {
      (void)Join(job, 0, "another card");
    } catch (const Error& error) {
      why = error.what();
    }
  }
  std::vector<std::unique_ptr<Client>> clients;
  clients.push_back(Join(job, 1));
  EXPECT_EQ(clients[0]->AwaitTuning(), Choice());
  clients[0]->ReportTuning("x");
  EXPECT_EQ(clients[0]->AwaitTuning(), "x");
  Train(job, std::move(clients));
  (void)job.Finish();
}

TEST_F(TuningJob, AChoiceThatDoesNotFitIsDropped) {
  TestJob job(Config(2));
  auto second = JoinSoon(job, 1);
  std::vector<std::unique_ptr<Client>> clients;
  clients.push_back(Join(job, 0));
  clients.push_back(second.get());
  clients[1]->ReportTuning("nobody asked");
  EXPECT_EQ(clients[0]->AwaitTuning(), Choice());
  clients[0]->ReportTuning(std::string(kMostTuningBytes + 1, 'x'));
  const std::string most(kMostTuningBytes, 'x');
  clients[0]->ReportTuning(most);
  clients[0]->ReportTuning("and again");
  for (auto& client : clients) EXPECT_EQ(client->AwaitTuning(), most);
  Train(job, std::move(clients));
  EXPECT_EQ(job.Finish().dropped_messages, 3u);
}

// What one card chose another may not be able to do; and its bits differ in any case.
TEST_F(TuningJob, OtherCardsAreRefusedByName) {
  TestJob job(Config(1, "cluster { on_lost_worker: REPLACE max_workers: 2 }"));
  std::vector<std::unique_ptr<Client>> clients;
  clients.push_back(Join(job, 0));
  const auto refusal = [&](const std::string& arithmetic, bool tunes) -> std::string {
    try {
      (void)Join(job, 1, arithmetic, tunes);
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kRefused);
      return error.what();
    }
  };
  EXPECT_THAT(refusal("another card", true),
              AllOf(HasSubstr("rank 1 computes with \"another card\", rank 0 with \"a card\""),
                    HasSubstr("worker.autotune")));
  EXPECT_THAT(refusal("a processor", false), HasSubstr("computes with \"a processor\""));
  auto second = JoinSoon(job, 1);  // it waits for the start
  while (refusal("another card", true).find("rank 1 is taken") == std::string::npos) {
  }
  EXPECT_EQ(clients[0]->AwaitTuning(), Choice());
  clients[0]->ReportTuning("x");
  EXPECT_EQ(clients[0]->AwaitTuning(), "x");
  auto first = std::async(std::launch::async, [&] { Train(job, std::move(clients)); });
  std::vector<std::unique_ptr<Client>> others;
  others.push_back(second.get());
  EXPECT_EQ(others[0]->AwaitTuning(), "x");
  Train(job, std::move(others));
  first.get();
  (void)job.Finish();
}

TEST_F(TuningJob, WhoTimesForTooLongIsNamed) {
  TestJob job(Config(2, "deadlines { first_step_s: 0.5 }"));
  auto second = JoinSoon(job, 1);
  const std::unique_ptr<Client> client = Join(job, 0), other = second.get();
  EXPECT_EQ(client->AwaitTuning(), Choice());
  EXPECT_THROW((void)other->AwaitTuning(), Error);
  EXPECT_THAT(job.FinishError(), AllOf(HasSubstr("no choice of algorithms (worker.autotune)"),
                                       HasSubstr("from rank 0 ("), HasSubstr("within 0.5 s")));
}

// A run that goes on has the choice from its checkpoint, on the same cards.
TEST_F(TuningJob, ACheckpointKeepsTheChoice) {
  const std::string dir = NewRun();
  const auto config = [&](uint32_t workers, int64_t steps) {
    config::Config made = Config(workers);
    made.mutable_run()->set_steps(steps);
    made.mutable_run()->set_dir(dir);
    return made;
  };
  const auto run = [&](int64_t steps, const std::string& arithmetic, const Choice& wanted) {
    TestJob job(config(1, steps));
    std::vector<std::unique_ptr<Client>> clients;
    clients.push_back(Join(job, 0, arithmetic));
    Choice got = clients[0]->AwaitTuning();
    EXPECT_EQ(got, wanted);
    if (!got) {
      clients[0]->ReportTuning("chosen on " + arithmetic);
      got = clients[0]->AwaitTuning();
    }
    EXPECT_EQ(got, "chosen on " + arithmetic);
    Train(job, std::move(clients));
    (void)job.Finish();
    EXPECT_EQ(NewestState(dir).arithmetic().tuning(), *got);
  };
  run(2, "a card", Choice());
  run(4, "a card", "chosen on a card");
  run(6, "another card", Choice());
  run(8, "another card", "chosen on another card");
}

}  // namespace
}  // namespace muster::testing
