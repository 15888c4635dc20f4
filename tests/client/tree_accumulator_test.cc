#include "worker/follow/tree_accumulator.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/ps/tree_sum_reference.h"

namespace muster {
namespace {

// Numbers whose sum depends on the order in its last bits.
float Value(int64_t slice) { return 1.0f / static_cast<float>(3 * slice + 1) - 0.3f; }

class Sums : public SliceSums {
 public:
  explicit Sums(std::set<int64_t> empty) : empty_(std::move(empty)) {}
  bool ComputeSlice(int64_t slice, const SumPlace& place) override {
    computed.push_back(slice);
    if (empty_.contains(slice)) return false;
    levels[place.level] = Value(slice);
    AddUp(place.pending);
    if (place.last) complete = true;
    return true;
  }
  void AddUp(const std::vector<size_t>& pending) override {
    for (const size_t level : pending) levels[level] += levels[level + 1];
  }
  float levels[8] = {};
  std::vector<int64_t> computed;
  bool complete = false;  // by the last slice

 private:
  const std::set<int64_t> empty_;
};

TEST(TreeAccumulator, AddsInTheOrderOfTheTree) {
  for (int64_t slices = 1; slices <= 9; ++slices) {
    for (unsigned mask = 0; mask < 1u << slices; ++mask) {  // which slices are empty
      std::set<int64_t> empty;
      for (int64_t s = 0; s < slices; ++s) {
        if ((mask >> s & 1) != 0) empty.insert(s);
      }
      for (const Range& range : {Range{0, slices}, Range{slices / 2, slices}}) {
        for (const TreeNode& node : Decompose(range, slices)) {
          Sums sums(empty);
          bool any = false;
          const float expected = testing::TreeSumOf(
              Value, node, slices, [&](int64_t s) { return empty.contains(s); }, &any);
          EXPECT_EQ(AccumulateSlices(node, slices, sums), any);
          EXPECT_EQ(any ? sums.levels[0] : 0, expected) << slices << " slices, empty: " << mask;
          const Range covered = Covers(node, slices);
          ASSERT_EQ(std::ssize(sums.computed), covered.size());
          EXPECT_EQ(sums.computed.front(), covered.begin);
          EXPECT_EQ(sums.complete, !empty.contains(covered.end - 1));
        }
      }
    }
  }
}

}  // namespace
}  // namespace muster
