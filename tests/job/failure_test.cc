// Failures are named, and nothing hangs.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "common/base/error.h"
#include "common/plan/count_limits.h"
#include "tests/job/test_job.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

float One(int64_t, int64_t, size_t) { return 1; }

std::string JoinError(const ClientOptions& options, ExitCode* code) {
  try {
    Client client(options);
    return "";
  } catch (const Error& error) {
    *code = error.code();
    return error.what();
  }
}

// Over every transport that detects losses or moves bytes differently.
class Failure : public ::testing::TestWithParam<const char*> {
 protected:
  std::string ServerErrorWhen(const std::function<void(Client&, int64_t step)>& act, ExitCode* code,
                              SliceGradient gradient = One,
                              const decltype(WorkerBehaviour::loss)& loss = {});
};
class Refusal : public ::testing::TestWithParam<const char*> {};

// Starts a job of two, lets rank 1 misbehave in `step` by `act`, and returns the server's error.
std::string Failure::ServerErrorWhen(const std::function<void(Client&, int64_t step)>& act,
                                     ExitCode* code, SliceGradient gradient,
                                     const decltype(WorkerBehaviour::loss)& loss) {
  TestJob job(SmallConfig(2, 2), GetParam());
  auto good = std::async(std::launch::async, [&] {
    const auto client = job.Join(0);
    try {
      RunWorker(*client, {.gradient = gradient});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kPeerFailed) << error.what();
    }
  });
  auto client = job.Join(1);
  try {
    RunWorker(*client, {.gradient = gradient, .loss = loss, .before_step = [&](int64_t step) {
                          act(*client, step);
                        }});
  } catch (const Error&) {
  }
  client.reset();
  good.get();
  return job.FinishError(code);
}

TEST_P(Failure, NonfiniteGradientNamesRankStepAndVariable) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    ExitCode code{};
    // hidden/bias starts after the 300 weights of the hidden layer, padded to 304.
    const std::string error =
        ServerErrorWhen([](Client&, int64_t) {}, &code,
                        [bad](int64_t step, int64_t slice, size_t i) {
                          return step == 1 && slice == 1 && i == 304 + 17 ? bad : 1.0f;
                        });
    EXPECT_EQ(code, ExitCode::kNonfinite);
    EXPECT_THAT(error,
                AllOf(HasSubstr("hidden/bias[17]"), HasSubstr("rank 1"), HasSubstr("step 1")));
  }
}

TEST_P(Failure, OverflowOfTheSumNamesTheVariable) {
  ExitCode code{};
  const std::string error = ServerErrorWhen(
      [](Client&, int64_t) {}, &code,
      [](int64_t step, int64_t, size_t i) { return step == 2 && i == 304 ? 3e38f : 1.0f; });
  EXPECT_EQ(code, ExitCode::kNonfinite);
  EXPECT_THAT(error, AllOf(HasSubstr("hidden/bias[0]"), HasSubstr("step 2")));
}

TEST_P(Failure, NonfiniteLossStopsTheStepBeforeAnyUpdate) {
  ExitCode code{};
  const std::string error =
      ServerErrorWhen([](Client&, int64_t) {}, &code, One,
                      [](int64_t step, int64_t) { return step == 1 ? std::nan("") : 1; });
  EXPECT_EQ(code, ExitCode::kNonfinite);
  EXPECT_THAT(error, AllOf(HasSubstr("slice 1"), HasSubstr("step 1"), HasSubstr("rank 1")));
}

TEST_P(Failure, ALostWorkerIsNamed) {
  ExitCode code{};
  const std::string error = ServerErrorWhen(
      [](Client&, int64_t step) {
        if (step == 1) throw Error(ExitCode::kFailure, "gone");
      },
      &code);
  EXPECT_EQ(code, ExitCode::kPeerFailed);
  EXPECT_THAT(error,
              AllOf(HasSubstr("rank 1"), HasSubstr("pid"), HasSubstr("step 1"), HasSubstr("lost")));
}

TEST_P(Failure, AReportedFailureIsHandedOn) {
  ExitCode code{};
  const std::string error = ServerErrorWhen(
      [](Client& client, int64_t step) {
        if (step != 2) return;
        client.ReportFailure("data_batch_3.bin is truncated", ExitCode::kData);
        throw Error(ExitCode::kData, "truncated");
      },
      &code);
  EXPECT_EQ(code, ExitCode::kPeerFailed);
  EXPECT_THAT(error, AllOf(HasSubstr("rank 1"), HasSubstr("data_batch_3.bin is truncated")));
}

TEST_P(Failure, ATestSetOfTooManyBlocksNamesTheSettingThatHelps) {
  const config::Config config = SmallConfig(1, 1);
  TestJob job(config, GetParam());
  job.test_samples = kMostTestBlocks * config.evaluation().batch() + 1;
  auto joined = std::async(std::launch::async, [&] {
    ExitCode code{};
    return JoinError(job.OptionsFor(0), &code);
  });
  ExitCode code{};
  EXPECT_THAT(job.FinishError(&code), HasSubstr("set evaluation.batch to 251 or more"));
  EXPECT_EQ(code, ExitCode::kUsage);
  EXPECT_NE(joined.get(), "");
}

TEST_P(Failure, MissingRanksAreNamedAtTheStartDeadline) {
  config::Config config = SmallConfig(4, 8);
  config.mutable_deadlines()->set_start_s(1.5);
  TestJob job(config, GetParam());
  std::vector<std::thread> joined;
  for (const uint32_t rank : {0u, 2u}) {
    joined.emplace_back([&job, rank] {
      ExitCode code{};
      JoinError(job.OptionsFor(rank), &code);
      EXPECT_EQ(code, ExitCode::kPeerFailed);
    });
  }
  ExitCode code{};
  EXPECT_THAT(job.FinishError(&code),
              HasSubstr("2 of 4 workers did not join within 1.5 s: rank 1, 3 missing"));
  EXPECT_EQ(code, ExitCode::kDeadline);
  for (std::thread& thread : joined) thread.join();
}

TEST_P(Failure, WaitingForOthersIsNotSilence) {
  config::Config config = SmallConfig(2, 2);
  config.mutable_deadlines()->set_silence_s(2);
  TestJob job(config, GetParam());
  auto early = std::async(std::launch::async, [&] {
    const auto client = job.Join(0);
    RunWorker(*client, {.gradient = One});
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(3500));
  auto late = job.Join(1);
  RunWorker(*late, {.gradient = One});
  late.reset();
  early.get();
  EXPECT_EQ(job.Finish().steps, 3);
}

TEST_P(Failure, AStepDeadlineNamesWhoIsLate) {
  config::Config config = SmallConfig(2, 2);
  config.mutable_deadlines()->set_first_step_s(0.5);
  TestJob job(config, GetParam());
  auto good = std::async(std::launch::async, [&] {
    const auto client = job.Join(0);
    EXPECT_THROW(RunWorker(*client, {.gradient = One}), Error);
  });
  const auto late = job.Join(1);
  late->ReportReady();
  ExitCode code{};
  EXPECT_THAT(job.FinishError(&code), AllOf(HasSubstr("no loss from rank 1"), HasSubstr("step 0"),
                                            HasSubstr("; missing: slice 1 (rank 1)")));
  EXPECT_EQ(code, ExitCode::kDeadline);
  good.get();
}

TEST_P(Failure, AStepDeadlineNamesTheVariablesThatAreMissing) {
  config::Config config = SmallConfig(2, 2);
  config.mutable_deadlines()->set_first_step_s(0.5);
  TestJob job(config, GetParam());
  auto good = std::async(std::launch::async, [&] {
    const auto client = job.Join(0);
    EXPECT_THROW(RunWorker(*client, {.gradient = One}), Error);
  });
  const auto late = job.Join(1);
  late->ReportReady();
  const Order order = late->NextOrder();
  const OrderPart& part = order.parts.at(0);
  late->ReportLoss(0, part, 1, late->plan().Slice(late->plan().At(0), 1).size(), 1, 0);
  // All except the last two chunks, which have the end of out/weights, and out/bias.
  for (size_t c = 0; c + 2 < late->chunks().size(); ++c) {
    late->AwaitChunk(0, c);
    late->PushChunk(0, part, c);
  }
  ExitCode code{};
  EXPECT_THAT(job.FinishError(&code),
              AllOf(HasSubstr("no complete gradient from rank 1"),
                    HasSubstr("; missing: slice 1 of out/weights, out/bias (rank 1)")));
  EXPECT_EQ(code, ExitCode::kDeadline);
  good.get();
}

// roster_test.cc tests the reasons. Here: the worker is notified, and the job continues.
TEST_P(Refusal, IsSaidAndDisturbsNobody) {
  config::Config config = SmallConfig(2, 2);
  TestJob job(config, GetParam());
  ExitCode code{};

  ClientOptions options = job.OptionsFor(0);
  options.token = "0123456789abcdef0123456789abcdee";
  EXPECT_THAT(JoinError(options, &code), HasSubstr("token"));
  EXPECT_EQ(code, ExitCode::kRefused);

  options = job.OptionsFor(0);
  options.hello.set_graph_hash(99);
  options.hello.mutable_variable(2)->set_shape(0, 11);
  EXPECT_THAT(JoinError(options, &code),
              AllOf(HasSubstr("out/weights [10,100]"), HasSubstr("[11,100]")));
  EXPECT_EQ(code, ExitCode::kRefused);

  const auto first = std::async(std::launch::async, [&] {
    const auto client = job.Join(0);
    RunWorker(*client, {.gradient = One});
  });
  while (true) {  // until rank 0 has joined, because its data is the reference
    options = job.OptionsFor(0);
    options.hello.set_graph_hash(99);  // never joins itself
    options.silence_s = 0.1;           // gives up soon
    const std::string error = JoinError(options, &code);
    if (error.find("taken") != std::string::npos) break;
  }
  options = job.OptionsFor(1);
  options.hello.set_data_fingerprint(2);
  EXPECT_THAT(JoinError(options, &code), HasSubstr("different contents"));

  // The job is undisturbed.
  auto second = job.Join(1);
  RunWorker(*second, {.gradient = One});
  second.reset();
  first.wait();
  EXPECT_EQ(job.Finish().steps, 3);
}

// However long it requests its rank, the error is not that the server does not respond.
TEST(TakenRank, IsTheReasonAlsoWhenAskingTakesLongerThanTheStart) {
  TestJob job(SmallConfig(2, 2), "local");
  const auto first = std::async(std::launch::async, [&] {
    const auto client = job.Join(0);
    RunWorker(*client, {.gradient = One});
  });
  ClientOptions options = job.OptionsFor(0);
  options.hello.set_graph_hash(99);  // never joins itself
  options.start_s = 0.1;             // the client adds 5 s
  options.silence_s = 3.5;
  ExitCode code{};
  std::string error;
  do error = JoinError(options, &code);
  while (error.find("taken") == std::string::npos && code == ExitCode::kRefused);
  EXPECT_EQ(code, ExitCode::kRefused) << error;
  auto second = job.Join(1);
  RunWorker(*second, {.gradient = One});
  second.reset();
  first.wait();
  EXPECT_EQ(job.Finish().steps, 3);
}

const auto kTransports = ::testing::Values("ipc", "local");
const auto kName = [](const auto& tested) { return std::string(tested.param); };
INSTANTIATE_TEST_SUITE_P(Over, Failure, kTransports, kName);
INSTANTIATE_TEST_SUITE_P(Over, Refusal, kTransports, kName);

}  // namespace
}  // namespace muster::testing
