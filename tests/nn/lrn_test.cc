#include <gtest/gtest.h>

#include "tests/nn/op_case.h"
#include "tests/nn/test_backend.h"

namespace muster {
namespace {

std::string Lrn(int radius, float bias, float alpha, float beta) {
  return fmt::format("lrn {{ depth_radius: {} bias: {} alpha: {} beta: {} }}", radius, bias, alpha,
                     beta);
}

TEST(LrnTest, MatchesTheReference) {
  const auto backend = MakeTestBackend(1);
  for (const int64_t channels : {1, 2, 3, 5, 7, 8, 9, 16, 17, 64, 67}) {
    for (const int radius : {0, 1, 2, 3, 4, 5, 100}) {
      for (const float beta : {0.0f, 0.5f, 0.75f, 1.3f}) {
        for (const bool after_relu : {false, true}) {
          ExpectMatchesReference(*backend, {.layer = Lrn(radius, 1.5f, 0.6f, beta),
                                            .input = {3, 5, channels},
                                            .batch = 2,
                                            .input_is_relu = after_relu});
        }
      }
    }
  }
}

TEST(LrnTest, MatchesTheReferenceWithTheTutorialsSettingsAndTwoThreads) {
  for (const int threads : TestThreads()) {
    const auto backend = MakeTestBackend(threads);
    ExpectMatchesReference(
        *backend, {.layer = Lrn(4, 1, 0.001f / 9, 0.75f), .input = {12, 12, 64}, .batch = 5});
    ExpectMatchesReference(*backend, {.layer = Lrn(2, 2, 1e-4f, 0.75f), .input = {13, 13, 96}});
  }
}

}  // namespace
}  // namespace muster
