// The order in which the server computes the chunks of the next weights: lowest layer first,
// because the next forward pass starts with it. Tests only the aggregator, so that the timing is
// known.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "common/base/memory.h"
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/config/job_size.h"
#include "ps/update/aggregator.h"
#include "ps/update/choose_kernels.h"
#include "tests/job/test_job.h"

namespace muster::testing {
namespace {

using ::testing::ElementsAreArray;

struct Size {
  const char* name;
  int64_t units, chunk_bytes;
  bool in_pool;  // false: too few floats to wake a thread
};

// One worker, one slice, a pool of one thread.
class PublishOrder : public ::testing::TestWithParam<Size> {
 protected:
  void Make(float clip_norm) {
    config::Config config = SmallConfig(1, 1);
    config.mutable_model()->mutable_layer(0)->mutable_dense()->set_units(GetParam().units);
    config.mutable_cluster()->set_chunk_bytes(GetParam().chunk_bytes);
    config.mutable_optimizer()->set_clip_norm(clip_norm);
    graph_ = BuildGraph(config.model(), InputShape(config.data()));
    gradient_ = Arena(graph_->arena_floats());
    for (float& g : gradient_.floats()) g = 1;
    variables_.emplace(graph_->layout(),
                       VariablesOptions{.state_arenas = static_cast<size_t>(
                                            TraitsOf(config.optimizer()).state_arrays),
                                        .seed = 7});
    aggregator_.emplace(*variables_, pool_, CutChunks(graph_->layout(), config.cluster()),
                        config.optimizer(), *AvailableKernels().back(), /*may_skip=*/false,
                        [this](int64_t version, size_t chunk) {
                          EXPECT_EQ(version, 1);
                          published_.push_back(chunk);
                        });
    aggregator_->BeginStep(0, /*slices=*/1);
  }

  size_t chunks() const { return aggregator_->chunks().size(); }

  // Adds chunks in the order of the backward pass: the last layer's first.
  void AddAll() {
    for (size_t c = chunks(); c-- > 0;) {
      const Chunk& chunk = aggregator_->chunks()[c];
      const std::span<const float> part = gradient_.floats().subspan(chunk.begin, chunk.floats());
      ASSERT_TRUE(aggregator_->Add(0, c, kSlice, false, {part.data(), part.size_bytes(), nullptr}));
    }
  }

  // Collects the pool's results until the step is complete.
  void Complete() {
    for (int i = 0; i < 5000 && !aggregator_->StepIsComplete(); ++i) {
      pollfd fd{pool_.fd(), POLLIN, 0};
      if (pool_.PrepareToSleep()) (void)::poll(&fd, 1, 10);
      pool_.Collect();
    }
    ASSERT_TRUE(aggregator_->StepIsComplete());
  }

  std::vector<size_t> Ascending() const {
    std::vector<size_t> order(chunks());
    std::iota(order.begin(), order.end(), size_t{0});
    return order;
  }

  static constexpr TreeNode kSlice{0, 0};
  std::optional<Graph> graph_;
  Arena gradient_;
  std::vector<size_t> published_;
  std::optional<Variables> variables_;
  std::optional<Aggregator> aggregator_;
  ThreadPool pool_{1};  // last, so that it is joined before the data of its thread is destroyed
};

// The norm is known after the last gradient. Then every chunk may be updated.
TEST_P(PublishOrder, IsAscendingAfterTheNormIsKnown) {
  Make(1);
  aggregator_->Proceed({.learning_rate = 1});
  AddAll();
  Complete();
  EXPECT_THAT(published_, ElementsAreArray(Ascending()));
}

// The losses arrive after the gradients.
TEST_P(PublishOrder, IsAscendingWhenUpdatesAreAllowedLast) {
  Make(0);
  AddAll();
  EXPECT_TRUE(published_.empty());
  aggregator_->Proceed({.learning_rate = 1});
  Complete();
  EXPECT_THAT(published_, ElementsAreArray(Ascending()));
}

TEST_P(PublishOrder, IsAscendingWhereAStepIsSkipped) {
  Make(0);
  AddAll();
  aggregator_->Proceed({.skip = true});
  Complete();
  EXPECT_THAT(published_, ElementsAreArray(Ascending()));
}

// A complete chunk does not wait for lower ones. But lower chunks that complete meanwhile overtake
// higher ones that wait for the thread.
TEST_P(PublishOrder, OfChunksThatArriveOneByOne) {
  Make(0);
  aggregator_->Proceed({.learning_rate = 1});
  AddAll();
  Complete();
  std::vector<size_t> expected = Ascending();
  if (GetParam().in_pool) {
    expected.insert(expected.begin(), expected.back());
    expected.pop_back();
  } else {
    std::ranges::reverse(expected);
  }
  EXPECT_THAT(published_, ElementsAreArray(expected));
}

INSTANTIATE_TEST_SUITE_P(Sizes, PublishOrder,
                         ::testing::Values(Size{"InPlace", 100, 1024, false},
                                           Size{"InThePool", 4000, 32768, true}),
                         [](const auto& size) { return std::string(size.param.name); });

}  // namespace
}  // namespace muster::testing
