// What happens to members in the middle of a step, by hand: a lost worker, a straggler, a zombie, a
// joiner, other shares. Whoever computes what, the weights are those of the undisturbed run.
#include "ps/coordinator.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "tests/ps/hand_coordinator.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Body = wire::ServerMessage::BodyCase;

const std::vector<TreeNode> kLeft{{1, 0}}, kRight{{1, 1}};  // halves of four slices
const std::vector<std::vector<TreeNode>> kHalves{kLeft, kRight};

// Three steps of two workers with two slices each; what an update must not do twice is in its
// state.
struct Variant {
  const char* name;
  void (*change)(config::Config&);
};

class Members : public ::testing::TestWithParam<Variant> {
 protected:
  static config::Config Config() {
    config::Config config = SmallConfig(2, 4);
    config.mutable_optimizer()->set_type(config::Optimizer::ADAM);
    config.mutable_learning_rate()->set_base(0.01);
    GetParam().change(config);
    return config;
  }
  // The weights of the run that nothing disturbs.
  static uint64_t Undisturbed() {
    HandCoordinator job(Config());
    for (int step = 0; step < 3; ++step) job.WholeStep(kHalves);
    EXPECT_TRUE(job.coordinator().done());
    return job.coordinator().weights_hash();
  }
  void ExpectUndisturbed() {
    EXPECT_EQ(job_.failure(), "");
    EXPECT_TRUE(job_.coordinator().done());
    EXPECT_EQ(job_.coordinator().weights_hash(), Undisturbed());
  }

  HandCoordinator job_{Config()};
};

// Losses were reported and some chunks pushed, some of them even used: what is missing is given to
// the other one.
TEST_P(Members, ALostWorkersWorkIsDoneByAnother) {
  const size_t chunks = job_.chunks();
  ASSERT_GE(chunks, 4u);
  auto mine = job_.Train(0, kLeft).at(0), theirs = job_.Train(1, kRight).at(0);
  job_.Losses(0, mine);
  job_.Losses(1, theirs);
  job_.PushAll(0, mine);
  EXPECT_EQ(job_.Push(1, theirs, 2), "");
  EXPECT_EQ(job_.Push(1, theirs, 0), "");
  job_.coordinator().Fence(1);
  EXPECT_THAT(job_.Push(1, theirs, 1), HasSubstr("which it does not have"))
      << "its lease has ended";
  ASSERT_TRUE(job_.coordinator().Redo(0, {1, 1}));
  const auto redo = job_.Redo(0);
  ASSERT_TRUE(redo);
  EXPECT_EQ(redo->step, 0);
  EXPECT_EQ(redo->arena, 1u);
  EXPECT_EQ(redo->chunks.size(), chunks - 2);
  EXPECT_EQ(std::ranges::count(redo->chunks, 0u) + std::ranges::count(redo->chunks, 2u), 0);
  job_.Losses(0, *redo);  // the same ones, which change nothing
  job_.PushAll(0, *redo);
  EXPECT_EQ(job_.coordinator().step(), 1);

  // The share of the one that is gone.
  for (int step = 1; step < 3; ++step) {
    mine = job_.Train(0, kLeft).at(0);
    job_.Losses(0, mine);
    job_.PushAll(0, mine);
    ASSERT_TRUE(job_.coordinator().Redo(0, {1, 1}));
    const auto whole = job_.Redo(0);
    ASSERT_TRUE(whole);
    EXPECT_EQ(whole->chunks.size(), chunks);
    job_.Losses(0, *whole);
    job_.PushAll(0, *whole);
  }
  ExpectUndisturbed();
}

TEST_P(Members, ALostSubtreeMayComeInPieces) {
  config::Config config = Config();
  config.mutable_cluster()->set_workers(3);
  config.mutable_run()->set_slices(4);  // 0 | 1 | 2 and 3
  HandCoordinator job(config);
  const std::vector<std::vector<TreeNode>> shares{{{0, 0}}, {{0, 1}}, {{1, 1}}};
  for (int step = 0; step < 3; ++step) {
    const auto first = job.Train(0, shares[0]).at(0), second = job.Train(1, shares[1]).at(0);
    job.Losses(0, first);
    job.Losses(1, second);
    job.PushAll(0, first);
    if (step == 0) {
      const auto third = job.Train(2, shares[2]).at(0);
      job.Losses(2, third);
      EXPECT_EQ(job.Push(2, third, 3), "");
      job.coordinator().Fence(2);
    }
    ASSERT_TRUE(job.coordinator().Redo(1, {0, 3}));
    ASSERT_TRUE(job.coordinator().Redo(0, {0, 2}));
    const auto right = *job.Redo(1), left = *job.Redo(0);
    EXPECT_EQ(left.chunks.size(), job.chunks() - (step == 0 ? 1 : 0));
    job.Losses(1, right);
    job.Losses(0, left);
    job.PushAll(1, right);
    job.PushAll(0, left);
    job.PushAll(1, second);
    EXPECT_EQ(job.coordinator().step(), step + 1);
  }
  EXPECT_EQ(job.failure(), "");
  EXPECT_EQ(job.coordinator().weights_hash(), Undisturbed());
}

// Both compute it. Of each chunk the first one counts; who has not brought all when the step is
// over is fenced.
TEST_P(Members, AStragglersWorkIsDoneTwiceAndCountsOnce) {
  const auto mine = job_.Train(0, kLeft).at(0), theirs = job_.Train(1, kRight).at(0);
  job_.Losses(0, mine);
  job_.PushAll(0, mine);
  ASSERT_TRUE(job_.coordinator().Redo(0, {1, 1}));
  const auto redo = *job_.Redo(0);
  job_.Losses(0, redo);
  EXPECT_EQ(job_.Push(0, redo, 0), "");
  job_.Losses(1, theirs);  // it is still there, and has the same losses
  EXPECT_EQ(job_.Push(1, theirs, 0), "") << "no offence: somebody was faster";
  EXPECT_EQ(job_.Push(1, theirs, 1), "");
  EXPECT_THAT(job_.Push(1, theirs, 1), HasSubstr("chunk 1 again"));
  for (const uint32_t c : redo.chunks) {
    if (c == 0) continue;
    EXPECT_EQ(job_.Push(0, redo, c), "");
  }
  EXPECT_EQ(job_.coordinator().step(), 1);
  const auto fence = job_.Next(1, [](const auto& m) { return m.has_fence(); });
  ASSERT_TRUE(fence);
  EXPECT_EQ(fence->address().incarnation(), 0u) << "to who listens";
  EXPECT_EQ(fence->fence().incarnation(), 1u);

  // A zombie: what it says is nobody's, and nothing is sent to it.
  job_.DropAll(1);  // Train of the next step went out before the fence
  EXPECT_THAT(job_.Kinds(1), ElementsAre());
  FromWorker late{FromWorker::Kind::kMessage, 2, {}, {}};
  late.message.mutable_address()->set_job(JobOf(TestToken()));
  late.message.mutable_address()->set_rank(1);
  std::string why;
  const auto before = job_.members().roster().at(1).last_heard;
  EXPECT_EQ(job_.members().SenderOf(late, why), std::nullopt);
  EXPECT_THAT(why, HasSubstr("incarnation"));
  EXPECT_GT(job_.members().roster().at(1).last_heard, before) << "it is alive";
  late.message.mutable_address()->set_incarnation(1);
  EXPECT_EQ(job_.members().SenderOf(late, why), 1u);

  // In the next step its share is done by the other one; it comes back in the midst of it.
  const auto next = job_.Train(0, kLeft).at(0);
  job_.Losses(0, next);
  job_.PushAll(0, next);
  ASSERT_TRUE(job_.coordinator().Redo(0, {1, 1}));
  const auto again = *job_.Redo(0);
  job_.Ready(1);
  EXPECT_THAT(job_.Kinds(1), ElementsAre()) << "not before the losses of the step are in";
  job_.Losses(0, again);
  EXPECT_THAT(job_.Kinds(1), ElementsAre(Body::kEnter, Body::kAssignment, Body::kTrain));
  const auto enter = job_.Next(1, [](const auto& m) { return m.has_enter(); });
  EXPECT_EQ(enter->enter().version(), 2);
  EXPECT_EQ(enter->address().incarnation(), 1u);
  job_.PushAll(0, again);
  EXPECT_EQ(job_.coordinator().step(), 2);
  const auto last = job_.Train(0, kLeft).at(0);
  job_.Losses(0, last);
  job_.PushAll(0, last);
  job_.coordinator().Fence(1);
  ASSERT_TRUE(job_.coordinator().Redo(0, {1, 1}));
  const auto rest = *job_.Redo(0);
  job_.Losses(0, rest);
  job_.PushAll(0, rest);
  ExpectUndisturbed();
}

// The one that was thought slow was faster: who helped in vain is no straggler, and its own work of
// the next step counts.
TEST_P(Members, WhoHelpedInVainGoesOn) {
  const auto mine = job_.Train(0, kLeft).at(0), theirs = job_.Train(1, kRight).at(0);
  job_.Losses(0, mine);
  job_.PushAll(0, mine);
  ASSERT_TRUE(job_.coordinator().Redo(0, {1, 1}));
  const auto redo = *job_.Redo(0);
  EXPECT_EQ(job_.Push(0, redo, 1), "");
  job_.Losses(1, theirs);
  job_.PushAll(1, theirs);
  EXPECT_EQ(job_.coordinator().step(), 1);
  EXPECT_FALSE(job_.Next(0, [](const auto& m) { return m.has_fence(); }));
  EXPECT_THAT(job_.Push(0, redo, 0), HasSubstr("a gradient of step 0 at step 1"));
  for (int step = 1; step < 3; ++step) job_.WholeStep(kHalves);
  ExpectUndisturbed();
}

// Weights follow Enter, from its version on, each chunk once.
TEST_P(Members, WhoEntersGetsWholeWeights) {
  job_.WholeStep(kHalves);
  job_.coordinator().Fence(1);
  job_.DropAll(1);
  job_.Ready(1);
  const auto mine = job_.Train(0, kLeft).at(0);
  job_.Losses(0, mine);
  job_.PushAll(0, mine);
  ASSERT_TRUE(job_.coordinator().Redo(0, {1, 1}));
  const auto redo = *job_.Redo(0);
  job_.Losses(0, redo);
  EXPECT_FALSE(job_.coordinator().Redo(1, {0, 2})) << "of a step whose weights it never gets";
  job_.PushAll(0, redo);
  ASSERT_TRUE(job_.Next(1, [](const auto& m) { return m.has_enter(); }));
  const auto theirs = job_.Next(1, [](const auto& m) { return m.has_train(); });
  ASSERT_TRUE(theirs);
  EXPECT_EQ(theirs->train().step(), 2);
  std::vector<int> came(job_.chunks());
  while (const auto weights = job_.Next(1, [](const auto& m) { return m.has_weights_chunk(); })) {
    EXPECT_EQ(weights->weights_chunk().version(), 2);
    EXPECT_EQ(weights->address().incarnation(), 1u);
    ++came.at(weights->weights_chunk().chunk());
  }
  EXPECT_THAT(came, ::testing::Each(1));
}

// It would be given work of the next step, and leave in the middle of it.
TEST_P(Members, ALeavingWorkerThatWasFencedDoesNotEnterAgain) {
  job_.WholeStep(kHalves);
  job_.members().OnLeave(1);
  job_.coordinator().Fence(1);
  job_.DropAll(1);
  job_.Ready(1);
  const auto mine = job_.Train(0, kLeft).at(0);
  job_.Losses(0, mine);
  job_.PushAll(0, mine);
  ASSERT_TRUE(job_.coordinator().Redo(0, {1, 1}));
  const auto redo = *job_.Redo(0);
  job_.Losses(0, redo);
  job_.PushAll(0, redo);
  EXPECT_EQ(job_.coordinator().step(), 2);
  EXPECT_FALSE(job_.Next(1, [](const auto& m) { return m.has_enter(); }));
  EXPECT_FALSE(job_.Next(1, [](const auto& m) { return m.has_train(); }));
}

// Shares that change from one step to the next. Train names the assignment that it follows.
TEST_P(Members, OtherSharesGiveTheSameBits) {
  const std::vector<std::vector<TreeNode>> crossed{{{0, 3}, {0, 0}}, {{0, 1}, {0, 2}}};
  const auto mine = job_.Train(0, kLeft).at(0), theirs = job_.Train(1, kRight).at(0);
  job_.coordinator().Assign(crossed);
  job_.Losses(0, mine);
  job_.Losses(1, theirs);  // orders step 1
  const auto assignment = job_.Next(0, [](const auto& m) { return m.has_assignment(); });
  ASSERT_TRUE(assignment);
  EXPECT_EQ(assignment->assignment().id(), 1u);
  EXPECT_EQ(assignment->assignment().from_step(), 1);
  EXPECT_EQ(NodesOf(assignment->assignment()), crossed[0]);
  job_.PushAll(0, mine);
  job_.PushAll(1, theirs);
  job_.WholeStep(crossed);
  job_.WholeStep(crossed);
  ExpectUndisturbed();
}

INSTANTIATE_TEST_SUITE_P(
    All, Members,
    ::testing::Values(
        Variant{"Plain", [](config::Config&) {}},
        Variant{"ClipNorm", [](config::Config& c) { c.mutable_optimizer()->set_clip_norm(0.5); }},
        Variant{
            "SkipStep",
            [](config::Config& c) { c.mutable_run()->set_on_nonfinite(config::Run::SKIP_STEP); }},
        Variant{"Ema", [](config::Config& c) { c.mutable_optimizer()->set_ema_decay(0.9); }},
        Variant{
            "Bf16",
            [](config::Config& c) { c.mutable_cluster()->set_wire_dtype(config::Cluster::BF16); }}),
    [](const auto& p) { return p.param.name; });

// Who gets another loss out of the same samples and weights is no twin: the bits of the run would
// depend on who was faster.
TEST(Redo, ADifferentLossEndsTheRunAndNamesBoth) {
  HandCoordinator job(SmallConfig(2, 2));
  const auto mine = job.Train(0, {{0, 0}}).at(0), theirs = job.Train(1, {{0, 1}}).at(0);
  EXPECT_EQ(job.Loss(0, mine, 0), "");
  ASSERT_TRUE(job.coordinator().Redo(0, {0, 1}));
  const auto redo = *job.Redo(0);
  EXPECT_EQ(job.Loss(0, redo, 1, 1.0), "");
  EXPECT_EQ(job.Loss(1, theirs, 1, std::nextafter(1.0, 2.0)), "");
  EXPECT_THAT(job.failure(), AllOf(HasSubstr("rank 0"), HasSubstr("rank 1"),
                                   HasSubstr("different losses of slice 1"), HasSubstr("step 0")));
}

TEST(Redo, NothingIsDoneAgainThatIsHere) {
  HandCoordinator job(SmallConfig(2, 2));
  const auto theirs = job.Train(1, {{0, 1}}).at(0);
  job.PushAll(1, theirs);
  EXPECT_FALSE(job.coordinator().Redo(0, {0, 1}));
  EXPECT_EQ(job.Redo(0), std::nullopt);
}

// A lease is its member's alone: not another's, not for another subtree, not in another arena.
TEST(Leases, CountForTheirMemberOnly) {
  HandCoordinator job(SmallConfig(2, 2));
  const auto mine = job.Train(0, {{0, 0}}).at(0), theirs = job.Train(1, {{0, 1}}).at(0);
  EXPECT_THAT(job.Push(0, theirs, 0), HasSubstr("which it does not have"));
  auto other = mine;
  other.arena = 1;
  EXPECT_THAT(job.Push(0, other, 0), HasSubstr("in arena 1"));
  other = mine;
  other.node = {0, 1};
  EXPECT_THAT(job.Push(0, other, 0), HasSubstr("subtree 0.1"));
  other = mine;
  other.lease += 100;
  EXPECT_THAT(job.Push(0, other, 0), HasSubstr("which it does not have"));
  EXPECT_THAT(job.Loss(0, mine, 1), HasSubstr("a loss of slice 1 under lease"));
  EXPECT_EQ(job.Loss(0, mine, 0), "");
  EXPECT_THAT(job.Loss(0, mine, 0), HasSubstr("slice 0 again"));
}

// What a member has no right to say changes nothing.
TEST(Leases, NonsenseUnderARightLeaseIsRefused) {
  const config::Config config = SmallConfig(2, 2);
  const auto train = [&](bool nonsense) {
    HandCoordinator job(config);
    const auto mine = job.Train(0, {{0, 0}}).at(0), theirs = job.Train(1, {{0, 1}}).at(0);
    if (nonsense) {
      const size_t floats = CutChunks(job.graph().layout(), config.cluster())[0].floats();
      const std::vector<float> junk(floats + 1, 666);
      const auto refused = [&](int64_t step, uint32_t chunk, const TreeNode& node, size_t count) {
        wire::GradientPart part;
        part.set_step(step);
        part.set_chunk(chunk);
        *part.mutable_subtree() = SubtreeOf(node);
        part.set_lease(mine.lease);
        return job.coordinator().OnGradient(
                   0, part, {.data = junk.data(), .bytes = count * sizeof(float)}) != "";
      };
      for (const size_t count : {size_t{0}, floats - 1, floats + 1}) {
        EXPECT_TRUE(refused(0, 0, mine.node, count)) << count;
      }
      for (const int64_t step : {int64_t{-1}, int64_t{1}, int64_t{1} << 62}) {
        EXPECT_TRUE(refused(step, 0, mine.node, floats)) << step;
      }
      EXPECT_TRUE(refused(0, 1'000'000, mine.node, floats));
      EXPECT_TRUE(refused(0, 0, {63, 4'000'000'000}, floats));
      for (const auto& [step, slice, samples] :
           {std::tuple<int64_t, uint32_t, int64_t>{0, 77, 5}, {1, 0, 8}, {0, 0, 99}}) {
        wire::SliceLoss loss;
        loss.set_step(step);
        loss.set_slice(slice);
        loss.set_samples(samples);
        loss.set_lease(mine.lease);
        EXPECT_NE(job.coordinator().OnSliceLoss(0, loss), "") << step << " " << slice;
      }
    }
    for (const auto& [rank, task] : {std::pair(0u, mine), std::pair(1u, theirs)}) {
      job.Losses(rank, task);
      job.PushAll(rank, task);
    }
    EXPECT_EQ(job.coordinator().step(), 1);
    while (!job.coordinator().done()) job.WholeStep({{{0, 0}}, {{0, 1}}});
    return job.coordinator().weights_hash();
  };
  EXPECT_EQ(train(true), train(false));
}

}  // namespace
}  // namespace muster::testing
