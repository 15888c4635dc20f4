// Lost workers: which ones a job waits for, for how long, and when it ends.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/link/protocol.h"
#include "common/transport/transport.h"
#include "tests/job/crew.h"

namespace muster::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(LostWorkers, FewerThanTheLeastAreWaitedForAndNamed) {
  config::Config config = CrewConfig("", 2);
  config.mutable_cluster()->set_min_workers(2);
  config.mutable_deadlines()->set_start_s(2);
  TestJob job(config);
  job.test_samples = kCrewTestSamples;
  Crew crew(job);
  crew.Add(0);
  crew.Add(1, DiesAt(Point::kLosses));
  ExitCode code{};
  EXPECT_THAT(job.FinishError(&code),
              AllOf(HasSubstr("1 of the required 2 workers (cluster.min_workers)"),
                    HasSubstr("rank 1 missing"), HasSubstr("its connection ended")));
  EXPECT_EQ(code, ExitCode::kDeadline);
}

TEST(LostWorkers, FewerThanTheLeastWaitForAnother) {
  config::Config config = CrewConfig("", 2);
  config.mutable_cluster()->set_min_workers(2);
  TestJob job(config);
  job.test_samples = kCrewTestSamples;
  std::atomic<int64_t> last_alone = 0;
  std::atomic<bool> alone = false;
  Crew crew(job);
  crew.Add(0, [&](Point now, int64_t step, Client&) {
    if (now == Point::kForward && alone) last_alone = step;
  });
  crew.Add(1, [&](Point now, int64_t step, Client& client) {
    try {
      DiesAt(Point::kLosses)(now, step, client);
    } catch (const Dies&) {
      alone = true;
      crew.Add(1, [&](Point point, int64_t, Client&) {
        if (point == Point::kJoined) alone = false;
      });
      throw;
    }
  });
  EXPECT_EQ(job.Finish().weights_hash, Undisturbed(config));
  EXPECT_LE(last_alone, kFaultStep + 1) << "at most the step that was ordered before";
}

TEST(LostWorkers, NobodyIsLeft) {
  config::Config config = CrewConfig("", 2);
  config.mutable_deadlines()->set_start_s(2);
  TestJob job(config);
  job.test_samples = kCrewTestSamples;
  Crew crew(job);
  for (const uint32_t rank : {0u, 1u}) crew.Add(rank, DiesAt(Point::kForward));
  ExitCode code{};
  EXPECT_THAT(job.FinishError(&code), HasSubstr("rank 0, 1 missing at step 2"));
  EXPECT_EQ(code, ExitCode::kDeadline);
}

// With CONTINUE, a worker that never joins is not replaced. Enough others suffice, whatever their
// ranks.
TEST(LostWorkers, TheStartGoesOnWithoutRanksThatNeverCame) {
  struct Case {
    uint32_t workers, least;
    std::vector<uint32_t> ranks;
  };
  for (const Case& one : {Case{3, 2, {1, 2}}, Case{2, 2, {0, 3}}, Case{2, 1, {2}}}) {
    config::Config config = CrewConfig("", one.workers);
    config.mutable_cluster()->set_min_workers(one.least);
    config.mutable_deadlines()->set_start_s(1);
    TestJob job(config);
    job.test_samples = kCrewTestSamples;
    Crew crew(job);
    for (const uint32_t rank : one.ranks) crew.Add(rank);
    EXPECT_EQ(job.Finish().weights_hash, Undisturbed(config));
  }
}

// Additional workers that join early count as well.
TEST(LostWorkers, OneThatIsLostBeforeTheStartIsNotWaitedForWhereOthersAreEnough) {
  config::Config config = CrewConfig("", 2);
  config.mutable_cluster()->set_min_workers(2);
  config.mutable_deadlines()->set_start_s(600);  // the run must start for another reason
  TestJob job(config);
  job.test_samples = kCrewTestSamples;
  {
    const ClientOptions options = job.OptionsFor(0);
    const auto link =
        Connect(job.endpoint(), JobOf(job.token()), config::Cluster::IPC, 10s, options.link);
    wire::WorkerMessage hello;
    hello.mutable_address()->set_job(JobOf(job.token()));
    *hello.mutable_hello() = options.hello;
    hello.mutable_hello()->set_token(job.token());
    hello.mutable_hello()->set_protocol_version(kProtocolVersion);
    hello.mutable_hello()->set_rank(0);
    // The second Hello is answered immediately, because it has the rank already.
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(link->Send(hello, {}));
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    std::optional<FromServer> answer;
    while (!answer && std::chrono::steady_clock::now() < deadline) answer = link->Receive();
    ASSERT_TRUE(answer && answer->message.has_refused());
  }
  Crew crew(job);
  for (const uint32_t rank : {1u, 2u}) crew.Add(rank);
  EXPECT_EQ(job.Finish().weights_hash, Undisturbed(config));
}

TEST(LostWorkers, TheStartEndsWithFewerThanTheLeast) {
  config::Config config = CrewConfig("", 3);
  config.mutable_cluster()->set_min_workers(2);
  config.mutable_deadlines()->set_start_s(1);
  TestJob job(config);
  Crew crew(job);
  crew.Add(1);
  ExitCode code{};
  EXPECT_THAT(job.FinishError(&code), HasSubstr("rank 0, 2 missing"));
  EXPECT_EQ(code, ExitCode::kDeadline);
}

// A worker that misses a step's deadline counts as lost, as if its process had ended.
TEST(LostWorkers, AStepsDeadlineIsALoss) {
  config::Config config = CrewConfig("", 2);
  config.mutable_deadlines()->set_first_step_s(1);
  TestJob job(config);
  job.test_samples = kCrewTestSamples;
  std::atomic<bool> over = false;
  Crew crew(job);
  crew.Add(0);
  crew.Add(1, [&](Point now, int64_t step, Client&) {
    if (now != Point::kForward || step != 0) return;
    while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    throw Dies();
  });
  EXPECT_EQ(job.Finish().weights_hash, Undisturbed(config));
  over = true;
}

// The same slice ends every worker. The lost worker has a single slice: with two, different slices
// could end two workers.
TEST(LostWorkers, ASliceThatEndsItsWorkersEndsTheRunAndIsNamed) {
  config::Config config = CrewConfig("", 4, 4);
  TestJob job(config);
  job.test_samples = kCrewTestSamples;
  Crew crew(job);
  const auto dies = [](Point now, int64_t step, Client&) {
    if (now == Point::kTakenOver && step == kFaultStep) throw Dies();
  };
  for (const uint32_t rank : {0u, 1u, 2u}) crew.Add(rank, dies);
  crew.Add(3, DiesAt(Point::kForward));
  ExitCode code{};
  EXPECT_THAT(job.FinishError(&code), AllOf(HasSubstr("of step 2"), HasSubstr("killed 3 workers")));
}

// So does a block of an evaluation, during a run and after its last step. The slices of the step
// ordered after it are not blamed.
TEST(LostWorkers, ABlockThatEndsItsWorkersEndsTheRunAndIsNamed) {
  for (const int64_t step : {kFaultStep, kCrewSteps}) {
    config::Config config = CrewConfig("", 4, 8);
    TestJob job(config);
    job.test_samples = kCrewTestSamples;
    Crew crew(job);
    for (const uint32_t rank : {0u, 1u, 2u, 3u}) crew.Add(rank, DiesAt(Point::kLastBlock, step));
    ExitCode code{};
    EXPECT_THAT(
        job.FinishError(&code),
        AllOf(HasSubstr("block 15 of the evaluation of step " + std::to_string(step)),
              HasSubstr("samples 60 to 63 of the test set"), HasSubstr("killed 3 workers")));
    EXPECT_EQ(code, ExitCode::kPeerFailed);
  }
}

// Two workers are lost at it, and the third one completes it.
TEST(LostWorkers, ABlockThatEndedTwoWorkersIsDoneByTheThird) {
  config::Config config = CrewConfig("", 3, 8);
  TestJob job(config);
  job.test_samples = kCrewTestSamples;
  std::atomic<int> deaths = 0;
  Crew crew(job);
  for (const uint32_t rank : {0u, 1u, 2u}) {
    crew.Add(rank, [&](Point now, int64_t step, Client&) {
      if (now == Point::kLastBlock && step == kFaultStep && deaths++ < 2) throw Dies();
    });
  }
  EXPECT_EQ(job.Finish().weights_hash, Undisturbed(config));
  EXPECT_EQ(deaths, 3);
}

}  // namespace
}  // namespace muster::testing
