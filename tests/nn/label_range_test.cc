// Labels that are no class are a bug of whoever reads the data: the CPU backend ends the process.
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
