// An invalid label is a bug of the data reader, so the CPU backend aborts.
#include <gtest/gtest.h>

#include "tests/nn/loss_run.h"

namespace muster {
namespace {

TEST(LabelRangeDeathTest, LossesRefuseLabelsOutOfRange) {
  for (const char* const loss :
       {"mean_squared_error {}", "sigmoid_cross_entropy {}", "softmax_cross_entropy {}"}) {
    EXPECT_DEATH(RunLossLayer(loss, {1, 2, 0}, {3}), "label");
    EXPECT_DEATH(RunLossLayer(loss, {1, 2, 0}, {-2}), "label");
  }
}

}  // namespace
}  // namespace muster
