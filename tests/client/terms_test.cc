// A worker's handling of Welcome and the following weights.
#include "worker/client/terms.h"

#include <gtest/gtest.h>

namespace muster {
namespace terms_test {

constexpr size_t kFloats = 40;

wire::Welcome Welcome() {
  wire::Welcome welcome;
  for (const uint64_t end : {10, 25, 40}) welcome.add_chunk_end(end);
  welcome.set_train_samples(100);
  welcome.set_global_batch(16);
  welcome.set_total_steps(9);
  welcome.set_slices(4);
  welcome.set_buffers(3);
  welcome.add_subtree()->set_level(1);
  welcome.add_subtree()->set_index(2);
  welcome.set_first_step(4);
  welcome.set_tensor_type(wire::BF16);
  return welcome;
}

TEST(Terms, AreWhatWelcomeSays) {
  const auto terms = ReadWelcome(Welcome(), kFloats);
  ASSERT_TRUE(terms);
  EXPECT_EQ(terms->plan.train_samples, 100);
  EXPECT_EQ(terms->plan.global_batch, 16);
  EXPECT_EQ(terms->plan.total_steps, 9);
  EXPECT_EQ(terms->plan.slices, 4);
  EXPECT_FALSE(terms->plan.drop_last);
  EXPECT_EQ(terms->first_step, 4);
  EXPECT_EQ(terms->nodes, (std::vector<TreeNode>{{1, 0}, {0, 2}}));
  EXPECT_EQ(terms->buffers, 3u);
  ASSERT_EQ(terms->chunks.size(), 3u);
  EXPECT_EQ(terms->chunks[1].begin, 10u);
  EXPECT_EQ(terms->chunks[1].end, 25u);
  EXPECT_EQ(terms->LargestChunk(), 15u);
  EXPECT_EQ(terms->wire_type, wire::BF16);
}

TEST(Terms, ThatDoNotFitAreRefused) {
  EXPECT_FALSE(ReadWelcome({}, kFloats));
  EXPECT_FALSE(ReadWelcome(Welcome(), kFloats + 1));
  const auto refused = [](const auto& change) {
    wire::Welcome welcome = Welcome();
    change(welcome);
    return !ReadWelcome(welcome, kFloats);
  };
  EXPECT_TRUE(refused([](wire::Welcome& w) { w.set_chunk_end(0, 26); })) << "not ascending";
  EXPECT_TRUE(refused([](wire::Welcome& w) { w.set_buffers(1); })) << "fewer than subtrees";
  EXPECT_TRUE(refused([](wire::Welcome& w) { w.set_buffers(6); })) << "memory for more than slices";
  EXPECT_TRUE(refused([](wire::Welcome& w) { w.set_slices(100'000); }));
  EXPECT_TRUE(refused([](wire::Welcome& w) { w.set_train_samples(int64_t{1} << 40); }));
  EXPECT_TRUE(refused([](wire::Welcome& w) { w.set_total_steps(-1); }));
  EXPECT_TRUE(refused([](wire::Welcome& w) { w.set_total_steps(int64_t{1} << 62); }));
  EXPECT_TRUE(refused([](wire::Welcome& w) { w.set_slices(0); }));
  EXPECT_TRUE(refused([](wire::Welcome& w) { w.set_train_samples(0); }));
  EXPECT_TRUE(refused([](wire::Welcome& w) { w.set_global_batch(0); }));
  EXPECT_TRUE(refused([](wire::Welcome& w) {
    w.set_drop_last(true);
    w.set_global_batch(101);
  })) << "empty epochs";
  const auto subtree = [&](uint32_t level, uint32_t index) {
    return refused([=](wire::Welcome& w) {
      w.mutable_subtree(1)->set_level(level);
      w.mutable_subtree(1)->set_index(index);
    });
  };
  EXPECT_TRUE(subtree(0, 4)) << "no such slices";
  EXPECT_TRUE(subtree(3, 0)) << "above the root";
  EXPECT_TRUE(subtree(0, 1)) << "a part of the previous one";
  EXPECT_FALSE(subtree(1, 1));
  EXPECT_TRUE(refused([](wire::Welcome& w) { w.set_first_step(-1); }));
  EXPECT_FALSE(refused([](wire::Welcome&) {}));
}

wire::WeightsChunk Chunk(int64_t version, uint32_t chunk, bool average = false) {
  wire::WeightsChunk weights;
  weights.set_version(version);
  weights.set_chunk(chunk);
  weights.set_average(average);
  return weights;
}

TEST(Arrivals, OfAChunkComeInTheOrderOfTheirVersions) {
  Arrivals arrived(2, 4);
  EXPECT_FALSE(arrived.Has(4, 0, false));
  EXPECT_FALSE(arrived.IsNext(Chunk(3, 0)));
  EXPECT_TRUE(arrived.IsNext(Chunk(6, 0))) << "earlier versions were not needed";
  ASSERT_TRUE(arrived.IsNext(Chunk(4, 0)));
  arrived.Mark(Chunk(4, 0));
  EXPECT_TRUE(arrived.Has(4, 0, false));
  EXPECT_FALSE(arrived.Has(5, 0, false));
  EXPECT_FALSE(arrived.Has(4, 1, false)) << "another chunk";
  EXPECT_FALSE(arrived.IsNext(Chunk(4, 0))) << "duplicate";
  EXPECT_TRUE(arrived.IsNext(Chunk(5, 0)));
  EXPECT_TRUE(arrived.IsNext(Chunk(4, 1)));
  EXPECT_FALSE(arrived.IsNext(Chunk(4, 2))) << "no such chunk";
}

TEST(Arrivals, WhatWasBeforeTheFirstNeverComes) {
  Arrivals arrived(1, 4);
  for (const bool average : {false, true}) EXPECT_FALSE(arrived.Has(3, 0, average));
  EXPECT_TRUE(arrived.BeginAfter(3));
  EXPECT_FALSE(arrived.BeginAfter(4));
  arrived.Mark(Chunk(4, 0));
  EXPECT_FALSE(arrived.Has(3, 0, false));
  EXPECT_FALSE(Arrivals().BeginAfter(0)) << "nothing is expected yet";
}

TEST(Arrivals, OfAnAverageComeAfterTheirWeightsAndNeedNotCome) {
  Arrivals arrived(1, 0);
  EXPECT_FALSE(arrived.IsNext(Chunk(0, 0, true)));
  for (int64_t v = 0; v <= 3; ++v) arrived.Mark(Chunk(v, 0));
  EXPECT_FALSE(arrived.Has(3, 0, true));
  EXPECT_FALSE(arrived.IsNext(Chunk(2, 0, true))) << "of older weights";
  EXPECT_FALSE(arrived.IsNext(Chunk(4, 0, true))) << "of weights that did not arrive";
  ASSERT_TRUE(arrived.IsNext(Chunk(3, 0, true)));
  arrived.Mark(Chunk(3, 0, true));
  EXPECT_TRUE(arrived.Has(3, 0, true));
  EXPECT_FALSE(arrived.IsNext(Chunk(3, 0, true))) << "duplicate";
  EXPECT_TRUE(arrived.IsNext(Chunk(4, 0))) << "weights continue";
  EXPECT_FALSE(arrived.Has(4, 0, true));
  arrived.Mark(Chunk(4, 0));
  EXPECT_FALSE(arrived.Has(4, 0, true));
  arrived.Mark(Chunk(6, 0));
  EXPECT_TRUE(arrived.Has(4, 0, true)) << "its evaluation is over";
}

}  // namespace terms_test
}  // namespace muster
