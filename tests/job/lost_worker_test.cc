// Workers that are lost, replaced, late, that leave or come, at every point of a step and of an
// evaluation, over every transport: the run goes on, and ends with the bits of the run that nothing
// disturbed.
#include <gmock/gmock-matchers.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "common/base/error.h"
#include "tests/job/hardy_worker.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kSteps = 6;
constexpr int64_t kTestSamples = 64;
constexpr int64_t kFaultStep = 2;

struct Variant {
  const char* name;
  const char* settings;
};

config::Config Config(const std::string& settings, uint32_t workers, uint32_t slices = 4) {
  config::Config config = SmallConfig(workers, slices);
  config::Config more;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(settings, &more)) << settings;
  config.MergeFrom(more);
  config.mutable_run()->set_steps(kSteps);
  config.mutable_evaluation()->set_every_steps(2);
  config.mutable_evaluation()->set_batch(4);
  config.mutable_evaluation()->clear_skip_final();
  if (config.cluster().on_lost_worker() == config::Cluster::ABORT)
    config.mutable_cluster()->set_on_lost_worker(config::Cluster::CONTINUE);
  return config;
}

// Workers in threads of this test.
class Crew {
 public:
  explicit Crew(const TestJob& job) : job_(job) {}
  ~Crew() {
    for (std::thread& thread : threads_) thread.join();
  }
  void Add(
      std::optional<uint32_t> rank, HardyWorker::At at = [](Point, int64_t, Client&) {}) {
    const std::lock_guard lock(mutex_);
    threads_.emplace_back([this, rank, at = std::move(at)] {
      try {
        if (HardyWorker(job_, rank, at).Run()) ++completed_;
      } catch (const Error& error) {
        const std::lock_guard errors(mutex_);
        errors_ += std::string(error.what()) + "\n";
      }
    });
  }
  int completed() const { return completed_; }
  std::string errors() {
    const std::lock_guard lock(mutex_);
    return errors_;
  }

 private:
  const TestJob& job_;
  std::mutex mutex_;
  std::vector<std::thread> threads_;
  std::atomic<int> completed_ = 0;
  std::string errors_;
};

// Something that some thread waits for, to which others come.
class Milestone {
 public:
  explicit Milestone(int count = 1) : left_(count) {}
  void Reach() {
    const std::lock_guard lock(mutex_);
    --left_;
    changed_.notify_all();
  }
  void Await() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(30), [&] { return left_ <= 0; }));
  }
  bool reached() {
    const std::lock_guard lock(mutex_);
    return left_ <= 0;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int left_;
};

// Waits there: the run shall not be over before that.
HardyWorker::At WaitsFor(Milestone& milestone, int64_t step) {
  return [&milestone, step](Point now, int64_t now_step, Client&) {
    if (now == Point::kForward && now_step == step) milestone.Await();
  };
}

// Tells when it is ready.
HardyWorker::At Reaches(Milestone& milestone) {
  return [&milestone](Point now, int64_t, Client&) {
    if (now == Point::kReady) milestone.Reach();
  };
}

// Once.
HardyWorker::At DiesAt(Point point, int64_t step = kFaultStep) {
  return [=](Point now, int64_t now_step, Client& client) {
    if (now != point || (now_step != step && point != Point::kJoined)) return;
    // What it has pushed is used: that of the others is there, or comes.
    if (point == Point::kHalfPushed) {
      client.AwaitChunk(step + 1, client.chunks().size() - 1);
    }
    throw Dies();
  };
}

uint64_t Undisturbed(const config::Config& config) {
  static std::mutex mutex;
  static std::map<std::string, uint64_t> known;
  config::Config plain = config;
  plain.clear_cluster();
  plain.mutable_cluster()->set_wire_dtype(config.cluster().wire_dtype());
  plain.mutable_cluster()->set_chunk_bytes(config.cluster().chunk_bytes());
  const std::lock_guard lock(mutex);
  uint64_t& hash = known[plain.SerializeAsString()];
  if (hash == 0) {
    config::Config two = config;
    two.mutable_cluster()->set_workers(2);
    TestJob job(two);
    job.test_samples = kTestSamples;
    {
      Crew crew(job);
      for (const uint32_t rank : {0u, 1u}) crew.Add(rank);
    }
    hash = job.Finish().weights_hash;
  }
  return hash;
}

class LostWorker : public ::testing::TestWithParam<std::tuple<const char*, Variant>> {
 protected:
  std::string transport() const { return std::get<0>(GetParam()); }
  std::string settings() const { return std::get<1>(GetParam()).settings; }
};

// Nobody takes its place.
TEST_P(LostWorker, AtEveryPointTheOthersGoOn) {
  for (const Point point : {Point::kForward, Point::kLosses, Point::kHalfPushed, Point::kPushed,
                            Point::kEvaluate, Point::kEvaluated}) {
    const config::Config config = Config(settings(), 3);
    TestJob job(config, transport());
    job.test_samples = kTestSamples;
    Crew crew(job);
    for (const uint32_t rank : {0u, 2u}) crew.Add(rank);
    crew.Add(1, DiesAt(point));
    EXPECT_EQ(job.Finish().weights_hash, Undisturbed(config)) << static_cast<int>(point);
  }
}

// Another one does, in the middle of the run. With two workers there are moments with one.
TEST_P(LostWorker, AtEveryPointAnotherTakesItsPlace) {
  for (const Point point : {Point::kJoined, Point::kForward, Point::kLosses, Point::kHalfPushed,
                            Point::kPushed, Point::kEvaluate, Point::kEvaluated}) {
    config::Config config = Config(settings(), 2);
    config.mutable_cluster()->set_on_lost_worker(config::Cluster::REPLACE);
    TestJob job(config, transport());
    job.test_samples = kTestSamples;
    Milestone ready;
    Crew crew(job);
    crew.Add(0, WaitsFor(ready, kFaultStep + 1));
    crew.Add(1, [&, dies = DiesAt(point)](Point now, int64_t step, Client& client) {
      try {
        dies(now, step, client);
      } catch (const Dies&) {
        crew.Add(1, Reaches(ready));
        throw;
      }
    });
    EXPECT_EQ(job.Finish().weights_hash, Undisturbed(config)) << static_cast<int>(point);
  }
}

// All of them, at one moment: the step goes on with newcomers where it was.
TEST_P(LostWorker, AllAreLostAndOthersCome) {
  for (const Point point :
       {Point::kForward, Point::kLosses, Point::kPushed, Point::kEvaluate, Point::kEvaluated}) {
    config::Config config = Config(settings(), 2);
    config.mutable_cluster()->set_on_lost_worker(config::Cluster::REPLACE);
    TestJob job(config, transport());
    job.test_samples = kTestSamples;
    std::atomic<int> dead = 0;
    Milestone ready(2);
    Crew crew(job);
    const auto newcomer = [&](Point now, int64_t step, Client& client) {
      Reaches(ready)(now, step, client);
      WaitsFor(ready, kFaultStep + 2)(now, step, client);
    };
    for (const uint32_t rank : {0u, 1u}) {
      crew.Add(rank, [&, dies = DiesAt(point)](Point now, int64_t step, Client& client) {
        try {
          dies(now, step, client);
        } catch (const Dies&) {
          if (++dead == 2) {
            crew.Add(0, newcomer);
            crew.Add(1, newcomer);
          }
          throw;
        }
      });
    }
    EXPECT_EQ(job.Finish().weights_hash, Undisturbed(config)) << static_cast<int>(point);
  }
}

// The one that does its work is lost, too.
TEST_P(LostWorker, LostWhileItDoesAnothersWork) {
  const config::Config config = Config(settings(), 4);
  TestJob job(config, transport());
  job.test_samples = kTestSamples;
  std::atomic<int> dead = 0;
  Crew crew(job);
  for (const uint32_t rank : {0u, 1u, 2u}) {
    crew.Add(rank, [&dead](Point now, int64_t, Client&) {
      if (now == Point::kRedo && dead.fetch_add(1) == 0) throw Dies();
    });
  }
  crew.Add(3, DiesAt(Point::kLosses));
  EXPECT_EQ(job.Finish().weights_hash, Undisturbed(config));
}

// The only one that takes part is asleep when another one comes, which has to do its work.
TEST_P(LostWorker, AZombieIsAloneUntilAnotherComes) {
  const config::Config config = Config(settings(), 1);
  for (const Point point : {Point::kForward, Point::kLosses, Point::kEvaluated}) {
    SCOPED_TRACE(static_cast<int>(point));
    TestJob job(config, transport());
    job.test_samples = kTestSamples;
    Milestone other_went_on, fenced;
    std::atomic<bool> slept = false;
    Crew crew(job);
    const auto newcomer = [&](Point now, int64_t step, Client&) {
      if (now == Point::kForward && step == kFaultStep + 2) other_went_on.Reach();
      if (now == Point::kForward && step == kFaultStep + 3) fenced.Await();
    };
    crew.Add(0, [&](Point now, int64_t step, Client&) {
      if (now == point && step == kFaultStep && !slept.exchange(true)) {
        crew.Add(std::nullopt, newcomer);
        other_went_on.Await();
      }
      if (now == Point::kFenced) fenced.Reach();
    });
    EXPECT_EQ(job.Finish().weights_hash, Undisturbed(config));
  }
}

// It is asleep for two steps of the others, which do its work; then it goes on, is fenced, and is
// taken back.
TEST_P(LostWorker, AZombieIsFencedAndTakenBack) {
  const config::Config config = Config(settings(), 2);
  for (const Point point : {Point::kForward, Point::kLosses, Point::kEvaluate}) {
    TestJob job(config, transport());
    job.test_samples = kTestSamples;
    Milestone others_went_on, fenced;
    std::atomic<bool> slept = false;
    Crew crew(job);
    crew.Add(0, [&](Point now, int64_t step, Client&) {
      if (now == Point::kForward && step == kFaultStep + 2) others_went_on.Reach();
      // Not to the end without it.
      if (now == Point::kForward && step == kFaultStep + 3) fenced.Await();
    });
    crew.Add(1, [&](Point now, int64_t step, Client&) {
      if (now == point && step == kFaultStep && !slept.exchange(true)) others_went_on.Await();
      if (now == Point::kFenced) fenced.Reach();
    });
    EXPECT_EQ(job.Finish().weights_hash, Undisturbed(config));
    EXPECT_TRUE(fenced.reached());
  }
}

// It is fenced while it does its last part: there is nothing left to wait for.
TEST_P(LostWorker, OneThatLeavesMayGoWhenItIsFenced) {
  const config::Config config = Config(settings(), 2);
  TestJob job(config, transport());
  job.test_samples = kTestSamples;
  Milestone others_went_on, left;
  Crew crew(job);
  crew.Add(0, [&](Point now, int64_t step, Client&) {
    if (now == Point::kForward && step == kFaultStep + 2) others_went_on.Reach();
    if (now == Point::kForward && step == kFaultStep + 3) left.Await();
  });
  crew.Add(1, [&](Point now, int64_t step, Client& client) {
    if (now == Point::kForward && step == kFaultStep) {
      client.Leave();
      others_went_on.Await();
    }
    if (now == Point::kEnd) left.Reach();
  });
  EXPECT_EQ(job.Finish().weights_hash, Undisturbed(config));
  EXPECT_TRUE(left.reached());
}

// 2 → 4 → 3 → 1: some come, one leaves, two are lost.
TEST_P(LostWorker, SomeComeAndGo) {
  config::Config config = Config(settings(), 2);
  config.mutable_cluster()->set_max_workers(4);
  TestJob job(config, transport());
  job.test_samples = kTestSamples;
  Milestone ready(2);
  std::atomic<bool> asked = false;
  Crew crew(job);
  const auto newcomer = [&](Point now, int64_t step, Client&) {
    if (now == Point::kReady) ready.Reach();
    if (now == Point::kForward && step >= 4) throw Dies();
  };
  crew.Add(0, [&](Point now, int64_t step, Client&) {
    if (now == Point::kForward && step == 3) ready.Await();
    if (now != Point::kForward || step != 1 || asked.exchange(true)) return;
    crew.Add(std::nullopt, newcomer);
    crew.Add(std::nullopt, newcomer);
  });
  crew.Add(1, [&](Point now, int64_t step, Client& client) {
    if (now == Point::kForward && step == 2) client.Leave();
  });
  EXPECT_EQ(job.Finish().weights_hash, Undisturbed(config));
}

std::vector<std::tuple<const char*, Variant>> Cases() {
  const Variant rounded{
      "Bf16", "cluster { wire_dtype: BF16 } optimizer { type: ADAM } learning_rate { base: 0.01 }"};
  std::vector<std::tuple<const char*, Variant>> cases;
  for (const char* const transport : {"ipc", "tcp", "local"}) {
    for (const Variant& variant :
         {Variant{"Momentum", "optimizer { type: MOMENTUM }"},
          Variant{"AdamAverage",
                  "optimizer { type: ADAM ema_decay: 0.9 } evaluation { use_ema: true } "
                  "learning_rate { base: 0.01 }"},
          Variant{"ClipSkip", "optimizer { clip_norm: 0.5 } run { on_nonfinite: SKIP_STEP }"}}) {
      cases.emplace_back(transport, variant);
    }
    // There are no 16 bits over the local link.
    if (std::string(transport) != "local") cases.emplace_back(transport, rounded);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Over, LostWorker, ::testing::ValuesIn(Cases()), [](const auto& tested) {
  return std::string(std::get<0>(tested.param)) + std::get<1>(tested.param).name;
});

// ---------------------------------------------------------------------------------- policy

TEST(LostWorkers, FewerThanTheLeastAreWaitedForAndNamed) {
  config::Config config = Config("", 2);
  config.mutable_cluster()->set_min_workers(2);
  config.mutable_deadlines()->set_start_s(2);
  TestJob job(config);
  job.test_samples = kTestSamples;
  Crew crew(job);
  crew.Add(0);
  crew.Add(1, DiesAt(Point::kLosses));
  ExitCode code{};
  EXPECT_THAT(job.FinishError(&code),
              AllOf(HasSubstr("1 of at least 2 workers (cluster.min_workers)"),
                    HasSubstr("rank 1 missing"), HasSubstr("its connection ended")));
  EXPECT_EQ(code, ExitCode::kDeadline);
}

TEST(LostWorkers, FewerThanTheLeastWaitForAnother) {
  config::Config config = Config("", 2);
  config.mutable_cluster()->set_min_workers(2);
  TestJob job(config);
  job.test_samples = kTestSamples;
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
  EXPECT_LE(last_alone, kFaultStep + 1) << "what was ordered before";
}

TEST(LostWorkers, NobodyIsLeft) {
  config::Config config = Config("", 2);
  config.mutable_deadlines()->set_start_s(2);
  TestJob job(config);
  job.test_samples = kTestSamples;
  Crew crew(job);
  for (const uint32_t rank : {0u, 1u}) crew.Add(rank, DiesAt(Point::kForward));
  ExitCode code{};
  EXPECT_THAT(job.FinishError(&code), HasSubstr("rank 0, 1 missing at step 2"));
  EXPECT_EQ(code, ExitCode::kDeadline);
}

// Who misses a step's deadline is lost, as if its process had ended.
TEST(LostWorkers, AStepsDeadlineIsALoss) {
  config::Config config = Config("", 2);
  config.mutable_deadlines()->set_first_step_s(1);
  TestJob job(config);
  job.test_samples = kTestSamples;
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

// The same slice ends whoever computes it.
TEST(LostWorkers, ASliceThatEndsItsWorkersEndsTheRunAndIsNamed) {
  config::Config config = Config("", 4, 8);
  TestJob job(config);
  job.test_samples = kTestSamples;
  Crew crew(job);
  const auto dies = [](Point now, int64_t step, Client&) {
    if (now == Point::kRedo && step == kFaultStep) throw Dies();
  };
  for (const uint32_t rank : {0u, 1u, 2u}) crew.Add(rank, dies);
  crew.Add(3, DiesAt(Point::kForward));
  ExitCode code{};
  EXPECT_THAT(job.FinishError(&code),
              AllOf(HasSubstr("of step 2"), HasSubstr("has ended 3 workers")));
}

TEST(LostWorkers, WithAbortTheRunEnds) {
  config::Config config = SmallConfig(2, 2);
  TestJob job(config);
  job.test_samples = kTestSamples;
  Crew crew(job);
  crew.Add(0);
  crew.Add(1, DiesAt(Point::kLosses));
  EXPECT_THAT(job.FinishError(), HasSubstr("was lost at step 2"));
}

}  // namespace
}  // namespace muster::testing
