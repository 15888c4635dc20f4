// The accuracies of the checkpoints on disk, by which checkpoint.keep_best chooses.
#include "ps/record/kept_checkpoints.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

// Writing and evaluating W(5) may end in either order.
TEST(KeptCheckpoints, AnEvaluationCountsForACheckpointWrittenBeforeOrAfterIt) {
  for (const bool is_evaluated_first : {true, false}) {
    KeptCheckpoints kept;
    kept.Add(kept.NameOf(4, true), {}, "step 4");
    if (is_evaluated_first) kept.OnEvaluated(5, 0.75);
    kept.Add(kept.NameOf(5, true), {}, "step 5");
    if (!is_evaluated_first) kept.OnEvaluated(5, 0.75);
    checkpoint::State state;
    kept.PutAccuracies(state);
    ASSERT_EQ(state.kept_size(), 1) << is_evaluated_first;
    EXPECT_EQ(state.kept(0).step(), 5);
    EXPECT_EQ(state.kept(0).accuracy(), 0.75);
  }
}

}  // namespace
}  // namespace muster
