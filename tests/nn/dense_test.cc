#include <gtest/gtest.h>

#include "tests/nn/op_case.h"
#include "worker/backend/cpu/cpu_backend.h"

namespace muster {
namespace {

TEST(DenseTest, MatchesTheReference) {
  for (const int threads : {1, 2}) {
    const auto backend = MakeCpuBackend(threads);
    for (const int64_t inputs : {1, 3, 5, 7, 17, 64, 300}) {
      for (const int units : {1, 2, 5, 10, 17, 64}) {
        for (const int64_t batch : {1, 2, 5, 64}) {
          const std::string layer = fmt::format("dense {{ units: {} }}", units);
          ExpectMatchesReference(*backend, {.layer = layer, .input = {1, 1, inputs},
                                            .batch = batch});
        }
      }
    }
  }
}

TEST(DenseTest, FusedAndUnfusedVariantsMatchTheReference) {
  const auto backend = MakeCpuBackend(1);
  for (int variant = 0; variant < 16; ++variant) {
    ExpectMatchesReference(
        *backend, {.layer = (variant & 8) != 0 ? "dense { units: 19 use_bias: false }"
                                               : "dense { units: 19 }",
                   .input = {3, 4, 5},  // an image, flattened
                   .batch = 6,
                   .activation = variant & 1 ? Activation::kRelu : Activation::kNone,
                   .input_is_relu = (variant & 2) != 0,
                   .input_gradient = (variant & 4) != 0});
  }
}

}  // namespace
}  // namespace muster
