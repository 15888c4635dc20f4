// The order of events at a step's boundary: the checkpoint's copy, the evaluation, the next step.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "common/model/model_metadata.h"
#include "common/tensors/safetensors_reader.h"
#include "tests/job/run_dirs.h"
#include "tests/ps/hand_run.h"

namespace muster::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Body = wire::ServerMessage::BodyCase;

constexpr int64_t kTestSamples = 40, kBlock = 20;

class Boundary : public RunDirs {
 protected:
  // One worker with one slice, and a checkpoint of every step.
  config::Config Config(int64_t steps) {
    config::Config config = SmallConfig(1, 1);
    config.mutable_run()->set_steps(steps);
    config.mutable_run()->set_dir(dir_);
    config.mutable_checkpoint()->set_every_steps(1);
    config.mutable_evaluation()->set_batch(kBlock);
    return config;
  }
  static void Await(HandRun& job, const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      job.Settle();
    }
  }
  // Waits until the checkpoint of the current step is on the disk.
  static void AwaitCheckpoint(HandRun& job) {
    Await(job, [&] { return !job.checkpoints().busy(); });
    ASSERT_TRUE(job.checkpoints().kept().newest());
    ASSERT_EQ(job.checkpoints().kept().newest()->step, job.step());
  }
  static void Step(HandRun& job) {
    AwaitCheckpoint(job);
    job.WholeStep();
    AwaitCheckpoint(job);
  }
  static void Evaluate(HandRun& job, int64_t version, wire::EvaluationSet set = wire::TEST,
                       double loss = 1, int64_t more_correct = 0) {
    for (int64_t number = 0; number < kTestSamples / kBlock; ++number) {
      wire::EvaluatedBlock block;
      block.set_version(version);
      block.set_set(set);
      block.set_block(static_cast<uint32_t>(number));
      block.set_samples(kBlock);
      block.set_loss(loss);
      block.set_correct(number + more_correct);
      EXPECT_EQ(job.run().OnEvaluatedBlock(0, block, HandRun::Now()), "");
    }
  }

  const std::string dir_ = NewRun();
};

// An update changes the optimizer's state in place, and starts when the next step is ordered. Here
// the copy lasts until the pool's results are collected.
TEST_F(Boundary, NoUpdateBeginsBeforeTheCheckpointIsCopied) {
  config::Config config = Config(2);
  config.mutable_optimizer()->set_type(config::Optimizer::MOMENTUM);
  // More than the loop copies by itself.
  config.mutable_model()->mutable_layer(0)->mutable_dense()->set_units(20'000);
  config.mutable_cluster()->set_chunk_bytes(1 << 19);
  HandRun job(config);
  ASSERT_TRUE(job.checkpoints().copying());
  const auto task = job.Train(0).at(0);
  EXPECT_EQ(job.Loss(0, task, 0), "");
  job.run().Advance(false, HandRun::Now());
  EXPECT_THAT(job.Kinds(0), Not(Contains(Body::kTrain)));
  ASSERT_TRUE(job.checkpoints().copying());
  Await(job, [&] { return !job.checkpoints().copying(); });
  EXPECT_THAT(job.Kinds(0), Contains(Body::kTrain));
  job.PushAll(0, task);
  Await(job, [&] { return job.step() == 1; });
}

// The last step gets two checkpoints: one before its evaluation, and one after it, which replaces
// the first. A run resumed from the second does not evaluate again.
TEST_F(Boundary, ACompleteRunsLastCheckpointIsEvaluated) {
  config::Config config = Config(2);
  config.mutable_evaluation()->set_skip_final(false);
  HandRun job(config, kTestSamples);
  Step(job);
  Step(job);
  EXPECT_EQ(ListCheckpoints(dir_).front().step, 2);
  EXPECT_FALSE(ListCheckpoints(dir_).front().evaluated);
  Evaluate(job, 2);
  Await(job, [&] { return job.run().done(); });
  EXPECT_EQ(ListCheckpoints(dir_).front().step, 2);
  EXPECT_TRUE(ListCheckpoints(dir_).front().evaluated);
  EXPECT_EQ(ListCheckpoints(dir_).back().step, 1);
  EXPECT_TRUE(NewestState(dir_).evaluated());
}

// The run stopped between a step and its evaluation, which may end the run. No step may be ordered
// before the evaluation has decided that.
TEST_F(Boundary, NoStepIsOrderedWhileADecisionIsPending) {
  config::Config config = Config(4);
  config.mutable_evaluation()->set_every_steps(2);
  config.mutable_evaluation()->set_stop_at_accuracy(0.99);
  {
    HandRun job(config, kTestSamples);
    Step(job);
    Step(job);
  }
  HandRun job(config, kTestSamples);
  ASSERT_EQ(job.step(), 2);
  EXPECT_THAT(job.Kinds(0), ElementsAre(Body::kWelcome, Body::kActivate, Body::kEvaluate));
  Evaluate(job, 2);
  EXPECT_EQ(job.Train(0).at(0).step, 2);
}

// The validation set decides. The test set is evaluated a single time, when no step is left. Here
// the run is stopped during it, sometimes with a checkpoint from before the validation.
class TestAtTheEnd : public Boundary, public ::testing::WithParamInterface<int64_t> {};
INSTANTIATE_TEST_SUITE_P(CheckpointEverySteps, TestAtTheEnd, ::testing::Values(0, 2));

TEST_P(TestAtTheEnd, ItIsEvaluatedAfterTheValidationSet) {
  config::Config config = Config(4);
  config.mutable_evaluation()->set_every_steps(2);
  config.mutable_evaluation()->set_skip_final(false);
  config.mutable_evaluation()->set_stop_at_accuracy(0.02);
  config.mutable_checkpoint()->set_every_steps(GetParam());
  const auto order = [](HandRun& job) {
    return job.Next(0, [](const auto& message) { return message.has_evaluate(); })->evaluate();
  };
  {
    HandRun job(config, kTestSamples, kTestSamples);
    AwaitCheckpoint(job);  // of the initial weights
    for (int step = 0; step < 2; ++step) job.WholeStep();
    Await(job, [&] { return !job.checkpoints().busy(); });
    EXPECT_EQ(order(job).set(), wire::VALIDATION);
    Evaluate(job, 2, wire::VALIDATION);  // 1 of 40 is correct, which is enough
    EXPECT_FALSE(job.run().done());
    const wire::Evaluate test = order(job);
    EXPECT_EQ(test.set(), wire::TEST);
    EXPECT_EQ(test.version(), 2);
    EXPECT_THAT(job.Kinds(0), Not(Contains(Body::kTrain)));
    wire::EvaluatedBlock late;
    late.set_version(2);
    late.set_set(wire::VALIDATION);
    late.set_samples(kBlock);
    EXPECT_NE(job.run().OnEvaluatedBlock(0, late, HandRun::Now()), "") << "it is of the other set";
    job.run().keeper().checkpoints.TakeLast();  // the run is stopped here
    Await(job, [&] { return !job.checkpoints().busy(); });
  }
  HandRun job(config, kTestSamples, kTestSamples);
  EXPECT_FALSE(job.run().done());
  EXPECT_EQ(order(job).set(), wire::TEST) << "the resumed run must evaluate the test set";
  Evaluate(job, 2, wire::TEST, 8);
  EXPECT_TRUE(job.run().parts().state.finishing());
  Await(job, [&] { return job.run().done(); });
  const auto summary = job.run().parts().keeper.progress.Summary(events::Summary::COMPLETED, 1);
  EXPECT_EQ(summary.validation().loss(), 1.0 * 2 / kTestSamples);
  EXPECT_EQ(summary.test().loss(), 8.0 * 2 / kTestSamples);
  EXPECT_EQ(summary.best_accuracy(), summary.validation().accuracy());
  EXPECT_EQ(summary.best_step(), 2);
  EXPECT_EQ(NewestState(dir_).progress().test().step(), 2);
}

// The evaluation of W(1) is ordered while step 0 is computed. A block of it that comes before W(1)
// exists cannot be honest, and ends neither the evaluation nor the server.
TEST_F(Boundary, BlocksOfWeightsThatDoNotExistYetAreDropped) {
  config::Config config = Config(4);
  config.mutable_evaluation()->set_every_steps(1);
  config.mutable_checkpoint()->set_every_steps(0);
  HandRun job(config, kTestSamples);
  Await(job, [&] { return !job.checkpoints().busy(); });
  const auto tasks = job.Train(0);
  for (const auto& task : tasks) job.Losses(0, task);
  wire::EvaluatedBlock block;
  block.set_version(1);
  block.set_set(wire::TEST);
  block.set_block(0);
  block.set_samples(kBlock);
  block.set_loss(1);
  block.set_correct(1);
  EXPECT_NE(job.run().OnEvaluatedBlock(0, block, HandRun::Now()), "");
  for (const auto& task : tasks) job.PushAll(0, task);
  job.Settle();
  EXPECT_EQ(job.step(), 1);
  EXPECT_EQ(job.run().OnEvaluatedBlock(0, block, HandRun::Now()), "");
}

// The server was lost after the best evaluation so far, which the resumed run may never repeat.
class LaterBest : public Boundary {
 protected:
  // Evaluates step 1, then step 3, which is better, with a checkpoint every `every_steps`. Goes
  // back to the checkpoint of step 2 and ends there, after an evaluation with this many correct
  // samples.
  events::Summary EndAtStep2(int64_t every_steps, int64_t correct) {
    config::Config config = Config(6);
    config.mutable_evaluation()->set_every_steps(1);
    config.mutable_evaluation()->set_skip_final(false);
    config.mutable_checkpoint()->set_every_steps(every_steps);
    config.mutable_checkpoint()->set_keep_last(10);
    {
      HandRun job(config, kTestSamples);
      AwaitCheckpoint(job);
      for (const int64_t step : {1, 2, 3}) {
        job.WholeStep();
        if (step % every_steps == 0) AwaitCheckpoint(job);
        EvaluateStep(job, 5 * step);
      }
    }
    EXPECT_EQ(StepInFile(), 3);
    for (const CheckpointName& name : ListCheckpoints(dir_)) {
      if (name.step > 2) std::filesystem::remove_all(CheckpointFolder(dir_, name));
    }
    config.mutable_run()->set_steps(2);
    HandRun job(config, kTestSamples);
    EXPECT_EQ(job.step(), 2);
    EvaluateStep(job, correct);
    Await(job, [&] { return job.run().done(); });
    job.run().keeper().saver.SaveLast(2).wait();
    return job.run().End(events::Summary::COMPLETED);
  }
  static void EvaluateStep(HandRun& job, int64_t correct) {
    Evaluate(job, job.step(), wire::TEST, 1, correct);
    job.Settle();
  }
  std::optional<int64_t> StepInFile() const {
    return StepOf(SafetensorsReader(dir_ + "/best.safetensors").header().metadata);
  }
};

TEST_F(LaterBest, IsReplacedByThatOfTheCheckpoint) {
  const auto summary = EndAtStep2(1, 2);
  EXPECT_EQ(summary.best_step(), 1);
  EXPECT_EQ(StepInFile(), 1);
  EXPECT_EQ(summary.lost(), "");
}

TEST_F(LaterBest, WithoutItsCheckpointItIsLost) {
  const auto summary = EndAtStep2(2, 2);
  EXPECT_EQ(summary.best_step(), 1);
  EXPECT_THAT(summary.lost(), HasSubstr("the weights of the best evaluation, at step 1"));
}

TEST_F(LaterBest, ABetterOneIsWritten) {
  const auto summary = EndAtStep2(2, 9);
  EXPECT_EQ(summary.best_step(), 2);
  EXPECT_EQ(StepInFile(), 2);
  EXPECT_EQ(summary.lost(), "");
}

wire::Tell Stop(int64_t step) {
  wire::Tell tell;
  tell.set_key(SharedValues::kStop);
  tell.set_step(step);
  tell.set_value("enough");
  return tell;
}

TEST_F(Boundary, AProgramEndsTheRun) {
  config::Config config = Config(4);
  {
    HandRun job(config);
    Step(job);
    EXPECT_EQ(job.run().OnTell(0, Stop(1), HandRun::Now()), "");
    EXPECT_EQ(job.run().OnTell(0, Stop(1), HandRun::Now()), "");
    Await(job, [&] { return job.run().done(); });
    EXPECT_EQ(job.run().End(events::Summary::COMPLETED).stop_reason(),
              "the program ended it: enough");
  }
  HandRun again(config);  // and the program does the same
  EXPECT_FALSE(again.run().done());
  EXPECT_EQ(again.run().OnTell(0, Stop(1), HandRun::Now()), "");
  Await(again, [&] { return again.run().done(); });
  EXPECT_EQ(again.step(), 1);
  EXPECT_EQ(again.failure(), "");
}

TEST_F(Boundary, AProgramEndsTheRunAfterAnEvaluation) {
  config::Config config = Config(4);
  config.mutable_evaluation()->set_every_steps(1);
  HandRun job(config, kTestSamples);
  Step(job);
  const auto tasks = job.Train(0);
  ASSERT_EQ(tasks.size(), 1u);
  EXPECT_EQ(job.Loss(0, tasks[0], 0), "");
  EXPECT_EQ(job.run().OnTell(0, Stop(1), HandRun::Now()), "");
  EXPECT_NE(job.Loss(0, tasks[0], 0), "");
  EXPECT_FALSE(job.run().done());
  Evaluate(job, 1);
  Await(job, [&] { return job.run().done(); });
  EXPECT_EQ(job.step(), 1);
}

TEST_F(Boundary, AProgramEndsTheRunAtAnotherStep) {
  HandRun job(Config(4));
  Step(job);
  EXPECT_EQ(job.run().OnTell(0, Stop(2), HandRun::Now()), "");
  EXPECT_EQ(job.failure(), "the program ended the run at step 2, but it is at step 1");
}

// The deadline of the first step would be over after 300 s.
TEST_F(Boundary, WhileAProgramComputesAValueNobodyElseIsLate) {
  config::Config config = SmallConfig(2, 2);
  config.mutable_deadlines()->set_once_s(400);
  config.mutable_cluster()->set_on_lost_worker(config::Cluster::REPLACE);
  HandRun job(config);
  wire::Ask ask;
  ask.set_key("a");
  ask.set_may_compute(true);
  Run::Time now = HandRun::Now();
  EXPECT_EQ(job.run().values().OnAsk(1, ask, 0, now), "");
  const Roster& roster = job.run().parts().roster;
  const auto pass = [&](int for_s) {
    for (int s = 0; s < for_s; ++s) job.run().CheckTime(now += std::chrono::seconds(1));
  };
  pass(400);
  EXPECT_TRUE(roster.at(0).present() && roster.at(1).present());
  pass(1);
  EXPECT_TRUE(roster.at(0).present());
  EXPECT_FALSE(roster.at(1).present());
}

}  // namespace
}  // namespace muster::testing
