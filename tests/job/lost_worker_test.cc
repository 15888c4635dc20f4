// Workers that are lost, replaced, slow, leave or join, at every point of a step and an evaluation,
// over every transport. The run continues and ends with the bits of an undisturbed run.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tests/job/crew.h"

namespace muster::testing {
namespace lost_worker_test {

struct Variant {
  const char* name;
  const char* settings;
};

// Blocks the worker there, so that the run cannot end before the milestone.
HardyWorker::At WaitsFor(Milestone& milestone, int64_t step) {
  return [&milestone, step](Point now, int64_t now_step, Client&) {
    if (now == Point::kForward && now_step == step) milestone.Await();
  };
}

// Reaches the milestone when the worker is ready.
HardyWorker::At Reaches(Milestone& milestone) {
  return [&milestone](Point now, int64_t, Client&) {
    if (now == Point::kReady) milestone.Reach();
  };
}

class LostWorker : public ::testing::TestWithParam<std::tuple<const char*, Variant>> {
 protected:
  std::string transport() const { return std::get<0>(GetParam()); }
  std::string settings() const { return std::get<1>(GetParam()).settings; }
};

// Without replacement.
TEST_P(LostWorker, AtEveryPointTheOthersGoOn) {
  for (const Point point : {Point::kForward, Point::kLosses, Point::kHalfPushed, Point::kPushed,
                            Point::kEvaluate, Point::kEvaluated}) {
    const config::Config config = CrewConfig(settings(), 3);
    TestJob job(config, transport());
    job.test_samples = kCrewTestSamples;
    Crew crew(job);
    for (const uint32_t rank : {0u, 2u}) crew.Add(rank);
    crew.Add(1, DiesAt(point));
    EXPECT_EQ(job.Finish().weights_hash, Undisturbed(config)) << static_cast<int>(point);
  }
}

// With a replacement during the run. With two workers, one is alone for a while.
TEST_P(LostWorker, AtEveryPointAnotherTakesItsPlace) {
  for (const Point point : {Point::kJoined, Point::kForward, Point::kLosses, Point::kHalfPushed,
                            Point::kPushed, Point::kEvaluate, Point::kEvaluated}) {
    config::Config config = CrewConfig(settings(), 2);
    config.mutable_cluster()->set_on_lost_worker(config::Cluster::REPLACE);
    TestJob job(config, transport());
    job.test_samples = kCrewTestSamples;
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

// All are lost at the same time. New workers continue the step.
TEST_P(LostWorker, AllAreLostAndOthersCome) {
  for (const Point point :
       {Point::kForward, Point::kLosses, Point::kPushed, Point::kEvaluate, Point::kEvaluated}) {
    config::Config config = CrewConfig(settings(), 2);
    config.mutable_cluster()->set_on_lost_worker(config::Cluster::REPLACE);
    TestJob job(config, transport());
    job.test_samples = kCrewTestSamples;
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

// The worker that takes over the work is lost as well.
TEST_P(LostWorker, LostWhileItDoesAnothersWork) {
  const config::Config config = CrewConfig(settings(), 4);
  TestJob job(config, transport());
  job.test_samples = kCrewTestSamples;
  std::atomic<int> dead = 0;
  Crew crew(job);
  for (const uint32_t rank : {0u, 1u, 2u}) {
    crew.Add(rank, [&dead](Point now, int64_t, Client&) {
      if (now == Point::kTakenOver && dead.fetch_add(1) == 0) throw Dies();
    });
  }
  crew.Add(3, DiesAt(Point::kLosses));
  EXPECT_EQ(job.Finish().weights_hash, Undisturbed(config));
}

// The only member is suspended when another one joins and does its work.
TEST_P(LostWorker, AZombieIsAloneUntilAnotherComes) {
  const config::Config config = CrewConfig(settings(), 1);
  for (const Point point : {Point::kForward, Point::kLosses, Point::kEvaluated}) {
    SCOPED_TRACE(static_cast<int>(point));
    TestJob job(config, transport());
    job.test_samples = kCrewTestSamples;
    Milestone other_went_on, reset;
    std::atomic<bool> slept = false;
    Crew crew(job);
    const auto newcomer = [&](Point now, int64_t step, Client&) {
      if (now == Point::kForward && step == kFaultStep + 2) other_went_on.Reach();
      if (now == Point::kForward && step == kFaultStep + 3) reset.Await();
    };
    crew.Add(0, [&](Point now, int64_t step, Client&) {
      if (now == point && step == kFaultStep && !slept.exchange(true)) {
        crew.Add(std::nullopt, newcomer);
        other_went_on.Await();
      }
      if (now == Point::kReset) reset.Reach();
    });
    EXPECT_EQ(job.Finish().weights_hash, Undisturbed(config));
  }
}

// It is suspended for two steps of the others, which do its work. Then it resumes, is reset, and
// rejoins.
TEST_P(LostWorker, AZombieIsResetAndTakenBack) {
  const config::Config config = CrewConfig(settings(), 2);
  for (const Point point : {Point::kForward, Point::kLosses, Point::kEvaluate}) {
    TestJob job(config, transport());
    job.test_samples = kCrewTestSamples;
    Milestone others_went_on, reset;
    std::atomic<bool> slept = false;
    Crew crew(job);
    crew.Add(0, [&](Point now, int64_t step, Client&) {
      if (now == Point::kForward && step == kFaultStep + 2) others_went_on.Reach();
      // The run must not end without it.
      if (now == Point::kForward && step == kFaultStep + 3) reset.Await();
    });
    crew.Add(1, [&](Point now, int64_t step, Client&) {
      if (now == point && step == kFaultStep && !slept.exchange(true)) others_went_on.Await();
      if (now == Point::kReset) reset.Reach();
    });
    EXPECT_EQ(job.Finish().weights_hash, Undisturbed(config));
    EXPECT_TRUE(reset.reached());
  }
}

// It is reset during its last part, so there is nothing left to wait for.
TEST_P(LostWorker, OneThatLeavesMayGoWhenItIsReset) {
  const config::Config config = CrewConfig(settings(), 2);
  TestJob job(config, transport());
  job.test_samples = kCrewTestSamples;
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

// 2 → 4 → 3 → 1 workers: some join, one leaves, two are lost.
TEST_P(LostWorker, SomeComeAndGo) {
  config::Config config = CrewConfig(settings(), 2);
  config.mutable_cluster()->set_max_workers(4);
  TestJob job(config, transport());
  job.test_samples = kCrewTestSamples;
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
          Variant{"ClipSkip", "optimizer { clip_norm: 0.5 } run { on_nonfinite: SKIP_STEP }"},
          Variant{"Fp16", "optimizer { type: ADAM } worker { precision: FP16 }"}}) {
      cases.emplace_back(transport, variant);
    }
    // The local link has no 16-bit mode.
    if (std::string(transport) != "local") cases.emplace_back(transport, rounded);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Over, LostWorker, ::testing::ValuesIn(Cases()), [](const auto& tested) {
  return std::string(std::get<0>(tested.param)) + std::get<1>(tested.param).name;
});

}  // namespace lost_worker_test
}  // namespace muster::testing
