// `muster data whiten`: filtered patches have the covariance 1.
#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "cli/data/whiten_command.h"
#include "common/base/error.h"
#include "common/tensors/safetensors_reader.h"
#include "proto/config.pb.h"
#include "tests/data/temp_dir.h"
#include "tests/data/test_sets.h"
#include "worker/data/preprocess.h"

namespace muster::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Pointwise;

TEST(EigenTest, OfTwoNumbers) {
  const Eigen eigen = EigenOf({2, 1, 1, 2}, 2);
  const double half = std::sqrt(0.5);
  EXPECT_THAT(eigen.values, Pointwise(::testing::DoubleNear(1e-15), {3.0, 1.0}));
  EXPECT_THAT(eigen.vectors, Pointwise(::testing::DoubleNear(1e-15), {half, half, half, -half}));
}

TEST(EigenTest, OfADiagonalMatrixIsInDescendingOrder) {
  const Eigen eigen = EigenOf({1, 0, 0, 0, 5, 0, 0, 0, -2}, 3);
  EXPECT_THAT(eigen.values, ElementsAre(5, 1, -2));
  EXPECT_THAT(eigen.vectors, ElementsAre(0, 1, 0, 1, 0, 0, 0, 0, 1));
}

TEST(EigenTest, VectorsTimesValuesAreTheMatrix) {
  constexpr size_t kOrder = 27;
  std::mt19937 random(1);
  std::vector<double> matrix(kOrder * kOrder);
  for (size_t i = 0; i < kOrder; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      matrix[i * kOrder + j] = matrix[j * kOrder + i] =
          std::uniform_real_distribution(-1.0, 1.0)(random);
    }
  }
  const Eigen eigen = EigenOf(matrix, kOrder);
  std::vector<double> product(kOrder * kOrder), squares(kOrder * kOrder), unit(kOrder * kOrder);
  for (size_t i = 0; i < kOrder; ++i) {
    unit[i * kOrder + i] = 1;
    for (size_t j = 0; j < kOrder; ++j) {
      for (size_t k = 0; k < kOrder; ++k) {
        product[i * kOrder + j] +=
            eigen.values[k] * eigen.vectors[k * kOrder + i] * eigen.vectors[k * kOrder + j];
        squares[i * kOrder + j] += eigen.vectors[i * kOrder + k] * eigen.vectors[j * kOrder + k];
      }
    }
  }
  EXPECT_THAT(product, Pointwise(::testing::DoubleNear(1e-13), matrix));
  EXPECT_THAT(squares, Pointwise(::testing::DoubleNear(1e-14), unit));
}

// Deviations from the mean, which the one-pass sums avoid.
TEST(PatchCovarianceTest, IsThatOfAllPatches) {
  const MemorySet set(4, {3, 4, 2});
  const std::vector<double> covariance = PatchCovariance(set, {}, 2, 2, 3);
  constexpr int64_t kEvenlySpaced[] = {0, 1, 2};  // floor(4 i / 3)
  const auto loader = MakePlanesLoader(set, {});
  const auto scratch = loader->MakeScratch();
  std::vector<std::vector<double>> patches;
  for (const int64_t sample : kEvenlySpaced) {
    float image[3][4][2];
    loader->Evaluate(sample, *scratch, &image[0][0][0]);
    for (int y = 0; y < 2; ++y) {
      for (int x = 0; x < 3; ++x) {
        std::vector<double>& patch = patches.emplace_back();
        for (int c = 0; c < 2; ++c) {
          for (const auto& [dy, dx] : {std::pair(0, 0), {0, 1}, {1, 0}, {1, 1}}) {
            patch.push_back(image[y + dy][x + dx][c]);
          }
        }
      }
    }
  }
  const auto mean = [&](const auto& value) {
    double sum = 0;
    for (const auto& patch : patches) sum += value(patch);
    return sum / static_cast<double>(patches.size());
  };
  ASSERT_EQ(covariance.size(), 64U);
  for (size_t i = 0; i < 8; ++i) {
    const double mean_i = mean([&](const auto& patch) { return patch[i]; });
    for (size_t j = 0; j < 8; ++j) {
      const double mean_j = mean([&](const auto& patch) { return patch[j]; });
      EXPECT_NEAR(covariance[i * 8 + j], mean([&](const auto& patch) {
                    return (patch[i] - mean_i) * (patch[j] - mean_j);
                  }),
                  1e-14);
    }
  }
}

class WhitenTest : public ::testing::Test {
 protected:
  WhitenTest() { WriteCifar10(dir_.path(), 3); }

  int Run(const std::string& layers, const std::string& layer = "") {
    const std::string path = dir_ / "config.txtpb";
    WriteBytes(path,
               "run { steps: 1 global_batch: 4 } data { format: CIFAR10 dir: \"" + dir_.string() +
                   "\" } model { " + layers +
                   " layer { name: \"loss\" softmax_cross_entropy {} } } optimizer { type: SGD "
                   "} learning_rate { base: 0.1 }");
    return RunWhiten({.config_path = path,
                      .settings = {},
                      .output = dir_ / "whiten.safetensors",
                      .layer = layer,
                      .epsilon = kEpsilon});
  }

  static constexpr double kEpsilon = 1e-3;
  TempDir dir_;
};

TEST_F(WhitenTest, ReplacesWeightsButNoOtherFile) {
  const std::string layers =
      "layer { name: \"white\" conv2d { filters: 24 kernel: 2 } } layer { name: \"out\" dense { "
      "units: 10 } }";
  WriteBytes(dir_ / "whiten.safetensors", "epochs: 1\n");
  try {
    Run(layers);
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
  }
  EXPECT_EQ(std::filesystem::file_size(dir_ / "whiten.safetensors"), 10u);
  std::filesystem::remove(dir_ / "whiten.safetensors");
  EXPECT_EQ(Run(layers), 0);
  EXPECT_EQ(Run(layers), 0);
}

TEST_F(WhitenTest, FilteredPatchesHaveTheCovarianceOne) {
  ASSERT_EQ(
      Run("layer { name: \"stem/white\" conv2d { filters: 24 kernel: 2 } } layer { name: \"out\" "
          "dense { units: 10 } }"),
      0);
  const SafetensorsReader file(dir_ / "whiten.safetensors");
  const StoredTensor* const tensor = file.header().Find("stem.white.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_THAT(tensor->shape, ElementsAre(24, 3, 2, 2));
  std::vector<float> filters(24 * 12);
  file.ReadFloats(*tensor, filters);

  config::Data data;
  const Datasets sets = OpenCifar10(dir_.string());
  const std::vector<double> covariance =
      PatchCovariance(*sets.train, data, 2, 2, sets.train->size());
  const std::vector<double> values = EigenOf(covariance, 12).values;
  for (size_t i = 0; i < 24; ++i) {
    for (size_t j = 0; j < 24; ++j) {
      double sum = 0;
      for (size_t a = 0; a < 12; ++a) {
        for (size_t b = 0; b < 12; ++b) {
          sum += filters[i * 12 + a] * covariance[a * 12 + b] * filters[j * 12 + b];
        }
      }
      const double variance = values[i % 12] / (values[i % 12] + kEpsilon);
      EXPECT_NEAR(sum, i == j ? variance : i % 12 == j % 12 ? -variance : 0, 1e-4) << i << " " << j;
    }
  }
}

TEST_F(WhitenTest, RefusesOtherLayers) {
  const auto code = [&](const std::string& layers, const std::string& layer = "") {
    try {
      (void)Run(layers + " layer { name: \"out\" dense { units: 10 } }", layer);
    } catch (const Error& error) {
      return error.code();
    }
    return ExitCode::kOk;
  };
  EXPECT_EQ(code("layer { name: \"a\" conv2d { filters: 23 kernel: 2 } }"), ExitCode::kUsage);
  EXPECT_EQ(code("layer { name: \"a\" relu {} } layer { name: \"b\" conv2d { filters: 24 kernel: 2 "
                 "} }"),
            ExitCode::kUsage);
  EXPECT_EQ(code("", "out"), ExitCode::kUsage);
  EXPECT_EQ(code("", "none"), ExitCode::kUsage);
  EXPECT_EQ(code(""), ExitCode::kUsage);
}

}  // namespace
}  // namespace muster::testing
