// The error about missing gradients at a deadline.
#include "ps/run/missing_parts.h"

#include <gtest/gtest.h>

#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "tests/job/test_job.h"

namespace muster::testing {
namespace {

class MissingParts : public ::testing::Test {
 protected:
  std::string Text(const std::vector<MissingPart>& parts) const {
    return MissingText(parts, graph_.layout(), chunks_);
  }
  // All chunks that hold some of these floats.
  std::vector<uint32_t> ChunksOf(size_t begin, size_t end) const {
    std::vector<uint32_t> found;
    for (uint32_t c = 0; c < chunks_.size(); ++c) {
      if (chunks_[c].begin < end && chunks_[c].end > begin) found.push_back(c);
    }
    return found;
  }

  const Graph graph_ = [] {
    const config::Config config = SmallConfig(1, 1);
    return BuildGraph(config.model(), InputShape(config.data()));
  }();
  const std::vector<Chunk> chunks_ = CutChunks(graph_.layout(), 1024);
};

TEST_F(MissingParts, AreNamedByVariableAndSlices) {
  const Variable& out = graph_.variables()[2];
  EXPECT_EQ(
      Text({{.rank = 1, .slices = {4, 8}, .chunks = ChunksOf(out.offset, out.offset + out.count)}}),
      "slices 4 to 7 of out/weights, out/bias (rank 1)");
  EXPECT_EQ(Text({{.rank = 0, .slices = {9, 10}, .chunks = ChunksOf(0, graph_.arena_floats())}}),
            "slice 9 of all 4 variables (rank 0)");
}

TEST_F(MissingParts, AreShortened) {
  std::vector<MissingPart> parts;
  for (uint32_t rank = 0; rank < 5; ++rank) {
    parts.push_back({.rank = rank, .slices = {rank, rank + 1}, .chunks = ChunksOf(0, 1)});
  }
  EXPECT_EQ(Text(parts),
            "slice 0 of hidden/weights (rank 0); slice 1 of hidden/weights (rank 1); slice 2 of "
            "hidden/weights (rank 2); and 2 more");
  EXPECT_EQ(Text({}), "");
  EXPECT_EQ(Text({{.rank = 0, .slices = {0, 1}, .chunks = {}}}), "");
}

}  // namespace
}  // namespace muster::testing
