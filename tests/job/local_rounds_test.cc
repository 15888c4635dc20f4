// Many tiny rounds over the local link, in which waits are too short to sleep. None may hang, and
// the end of file reveals a process that dies during a round.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "common/base/fd.h"
#include "tests/job/test_job.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr float kGradient = 1.0f / 1024;

// A worker that only takes part; `before_step` may block. Returns when the server sends Stop.
Order TakePart(Client& client, const std::function<void(int64_t)>& before_step = {}) {
  for (size_t arena = 0; arena < client.terms().nodes.size(); ++arena) {
    std::ranges::fill(client.GradientBuffer(arena), kGradient);
  }
  client.ReportReady();
  for (;;) {
    Order order = client.NextOrder();
    if (order.kind == Order::Kind::kStop) return order;
    for (size_t c = 0; c < client.chunks().size(); ++c) client.AwaitChunk(order.version, c);
    if (before_step) before_step(order.version);
    const StepPlan& plan = client.plan();
    const Batch batch = plan.At(order.version);
    for (const OrderPart& part : order.parts) {
      const Range slices = Covers(part.node, plan.slices);
      for (int64_t s = slices.begin; s < slices.end; ++s) {
        client.ReportLoss(order.version, part, s, plan.Slice(batch, s).size(), 1, 0);
      }
    }
    for (const OrderPart& part : order.parts) {
      for (size_t c = client.chunks().size(); c-- > 0;) client.PushChunk(order.version, part, c);
    }
  }
}

config::Config Rounds(int64_t steps, uint32_t workers = 2) {
  config::Config config = SmallConfig(workers, workers);
  config.mutable_run()->set_steps(steps);
  config.mutable_run()->set_log_every_steps(1000000000);
  config.mutable_cluster()->set_transport(config::Cluster::LOCAL);
  return config;
}

TEST(LocalRounds, TwentyThousandDoNotHang) {
  constexpr int64_t kSteps = 20000;
  TestJob job(Rounds(kSteps), "local");
  std::vector<float> seen;
  const auto work = [&](uint32_t rank) {
    const auto client = job.Join(rank);
    EXPECT_TRUE(TakePart(*client).completed);
    if (rank == 0) {
      // The last version never arrives as an order, so the one before it is awaited.
      const std::span<const float> weights = client->Weights(kSteps - 1);
      seen.assign(weights.begin(), weights.end());
    }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  EXPECT_EQ(job.Finish().steps, kSteps);
  const Variable& first = job.graph().variables()[0];
  EXPECT_EQ(seen[first.offset], -2 * kGradient * (kSteps - 1));
}

// With more processes than cores none may starve the one that is awaited.
TEST(LocalRounds, ManyWorkersDoNotHang) {
  constexpr int64_t kSteps = 1000;
  constexpr uint32_t kWorkers = 12;
  TestJob job(Rounds(kSteps, kWorkers), "local");
  std::vector<std::thread> workers;
  for (uint32_t rank = 0; rank < kWorkers; ++rank) {
    workers.emplace_back([&job, rank] { TakePart(*job.Join(rank)); });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(job.Finish().steps, kSteps);
}

// Rank 1 in a process of its own, to be killed. Created before the job, whose threads must not be
// forked.
class Victim {
 public:
  explicit Victim(const config::Config& config) {
    int endpoint[2], ready[2];
    EXPECT_EQ(::pipe(endpoint), 0);
    EXPECT_EQ(::pipe(ready), 0);
    pid_ = ::fork();
    if (pid_ == 0) Live(config, endpoint[0], ready[1]);
    endpoint_.Reset(endpoint[1]);
    ready_.Reset(ready[0]);
    ::close(endpoint[0]);
    ::close(ready[1]);
  }
  ~Victim() { Kill(); }
  void JoinAt(std::string endpoint) {
    endpoint.resize(kEndpointBytes);
    EXPECT_EQ(::write(endpoint_.get(), endpoint.data(), kEndpointBytes), kEndpointBytes);
  }
  // Waits until it reaches step 200.
  void AwaitItsStep() {
    char byte;
    EXPECT_EQ(::read(ready_.get(), &byte, 1), 1);
  }
  void Stop() { ::kill(pid_, SIGSTOP); }
  void Kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  static constexpr ssize_t kEndpointBytes = 100;

  [[noreturn]] static void Live(const config::Config& config, int endpoint_fd, int ready) {
    std::string endpoint(kEndpointBytes, 0);
    if (::read(endpoint_fd, endpoint.data(), kEndpointBytes) != kEndpointBytes) ::_exit(2);
    try {
      Client client(WorkerOptions(config, endpoint.c_str(), 1));
      TakePart(client, [&](int64_t step) {
        if (step == 200) (void)!::write(ready, "x", 1);
      });
    } catch (const std::exception&) {
    }
    ::_exit(3);
  }

  pid_t pid_ = -1;
  UniqueFd endpoint_, ready_;
};

// The server's error after rank 1 is killed. `stopped`: it is suspended first.
std::string EndWithoutRank1(bool stopped, std::string* others_error) {
  const config::Config config = Rounds(1000000000);
  Victim victim(config);
  TestJob job(config, "local");
  victim.JoinAt(job.endpoint());
  std::thread other([&] {
    const auto client = job.Join(0);
    try {
      *others_error = TakePart(*client).reason;
    } catch (const Error& error) {
      *others_error = error.what();
    }
  });
  victim.AwaitItsStep();
  if (stopped) {
    victim.Stop();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // all processes sleep
  }
  victim.Kill();
  other.join();
  return job.FinishError();
}

class Death : public ::testing::TestWithParam<bool> {};

// Immediately, by the end of file. Silence would be noticed after 20 s, a missed step after 60.
TEST_P(Death, IsNoticedByItsEndOfFile) {
  std::string others_error;
  EXPECT_THAT(EndWithoutRank1(GetParam(), &others_error),
              AllOf(HasSubstr("rank 1"), HasSubstr("its connection ended")));
  EXPECT_THAT(others_error, HasSubstr("rank 1"));
}
INSTANTIATE_TEST_SUITE_P(InARoundOrWhileTheyWaitForIt, Death, ::testing::Bool());

}  // namespace
}  // namespace muster::testing
