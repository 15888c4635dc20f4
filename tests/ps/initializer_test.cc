// DIRAC and ORTHOGONAL. update_test.cc has the initializers that draw each number on its own.
#include "ps/update/initializer.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>

#include <cmath>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/config/build_graph.h"
#include "proto/config.pb.h"
#include "tests/oracle/oracle.h"

namespace muster {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

// A network that begins with this layer, whose weights are the first variable.
Graph GraphOf(const std::string& layer, const Shape& input) {
  config::Model model;
  MUSTER_CHECK(google::protobuf::TextFormat::ParseFromString(
      "layer { name: \"it\" " + layer +
          " } layer { name: \"end\" dense { units: 2 } } "
          "layer { name: \"loss\" softmax_cross_entropy {} }",
      &model));
  return BuildGraph(model, input);
}

std::vector<float> WeightsOf(const std::string& layer, const Shape& input, uint64_t seed) {
  const Graph graph = GraphOf(layer, input);
  std::vector<float> arena(graph.arena_floats(), 7.0f);
  InitializeWeights(graph.layout(), seed, arena);
  arena.resize(graph.variables()[0].count);
  return arena;
}

std::string Orthogonal(const std::string& layer, float gain) {
  return fmt::format("{} weights {{ initializer {{ type: ORTHOGONAL gain: {} }} }} }}", layer,
                     gain);
}

void ExpectNear(const std::vector<float>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 3e-7) << i;
}

// torch.nn.init.dirac_(torch.empty(6, 2, 3, 2), groups=3) has its ones at [filter, channel, 1, 1].
TEST(Initializer, DiracIsThatOfPyTorch) {
  const std::vector<float> weights = WeightsOf(
      "conv2d { filters: 6 kernel: [3, 2] groups: 3 weights { initializer { type: DIRAC } } }",
      {4, 4, 6}, 1);
  std::vector<float> expected(6 * 3 * 2 * 2);
  const auto at = [](size_t filter, size_t channel) {
    return ((filter * 3 + 1) * 2 + 1) * 2 + channel;
  };
  for (size_t filter = 0; filter < 6; ++filter) expected[at(filter, filter % 2)] = 1;
  EXPECT_THAT(weights, ElementsAreArray(expected));
}

TEST(Initializer, DiracMayDrawTheFiltersThatCopyNothing) {
  const std::string layer = "conv2d {{ filters: 5 kernel: 3 weights {{ initializer {{ {} }} }} }}";
  const auto weights = [&](const char* initializer) {
    return WeightsOf(fmt::format(fmt::runtime(layer), initializer), {4, 4, 2}, 7);
  };
  const std::vector<float> dirac = weights("type: DIRAC"), he = weights("type: HE"),
                           both = weights("type: DIRAC draw_others: true");
  constexpr size_t kCopies = 2 * 3 * 3 * 2;
  for (size_t i = 0; i < both.size(); ++i) {
    const float expected = i < kCopies ? dirac[i] : std::sqrt(1.0f / 6) * he[i];
    EXPECT_NEAR(both[i], expected, 1e-7) << i;
  }
}

TEST(Initializer, DiracOfADenseLayerIsTheIdentity) {
  const char* const wide = "dense { units: 2 weights { initializer { type: DIRAC } } }";
  EXPECT_THAT(WeightsOf(wide, {1, 1, 3}, 1), ElementsAreArray({1, 0, 0, 0, 1, 0}));
  const char* const tall = "dense { units: 3 weights { initializer { type: DIRAC } } }";
  EXPECT_THAT(WeightsOf(tall, {1, 1, 2}, 1), ElementsAreArray({1, 0, 0, 1, 0, 0}));
}

// torch.nn.init.orthogonal_ on the same normal numbers: Q of torch.linalg.qr, times the signs of
// the diagonal of R, times the gain.
TEST(Initializer, OrthogonalIsThatOfPyTorch) {
  ExpectNear(WeightsOf(Orthogonal("dense { units: 2", 1), {1, 1, 3}, 9),
             {-0.592082677, 0.060818710, -0.803578987,  //
              -0.805874407, -0.042046145, 0.590591705});
  ExpectNear(WeightsOf(Orthogonal("dense { units: 4", 2), {1, 1, 2}, 9),
             {-0.964444663, 0.730646619, -1.308951428, -1.505756083,  //
              -0.001570158, 0.130935108, 1.164684586, -1.087064918});
}

TEST(Initializer, OrthogonalRowsOrColumnsAreOrthonormalAndDependOnTheSeed) {
  struct Size {
    int64_t units, inputs;
  };
  for (const Size& size : {Size{40, 100}, Size{100, 40}, Size{64, 64}, Size{1, 7}}) {
    const int64_t units = size.units, inputs = size.inputs;
    const std::string layer = Orthogonal(fmt::format("dense {{ units: {}", units), 1.5f);
    const std::vector<float> weights = WeightsOf(layer, {1, 1, inputs}, 3);
    EXPECT_EQ(weights, WeightsOf(layer, {1, 1, inputs}, 3));
    EXPECT_NE(weights, WeightsOf(layer, {1, 1, inputs}, 4));
    const bool rows = units <= inputs;
    const int64_t vectors = rows ? units : inputs, length = rows ? inputs : units;
    const auto number = [&](int64_t v, int64_t i) {
      return double{weights[static_cast<size_t>(rows ? v * inputs + i : i * inputs + v)]};
    };
    for (int64_t a = 0; a < vectors; ++a) {
      for (int64_t b = 0; b <= a; ++b) {
        double product = 0;
        for (int64_t i = 0; i < length; ++i) product += number(a, i) * number(b, i);
        ASSERT_NEAR(product, a == b ? 1.5 * 1.5 : 0, 2e-6) << a << ", " << b;
      }
    }
  }
}

// The oracle has a second implementation, with the same bits.
TEST(Initializer, HasTheBitsOfTheOracle) {
  for (const std::string& layer :
       {Orthogonal("conv2d { filters: 5 kernel: 3", 0.7f), Orthogonal("dense { units: 90", 1),
        std::string("conv2d { filters: 4 kernel: 3 groups: 2 weights { initializer { type: DIRAC } "
                    "} }")}) {
    const Graph graph = GraphOf(layer, {3, 3, 4});
    std::vector<float> arena(graph.arena_floats());
    InitializeWeights(graph.layout(), 11, arena);
    EXPECT_EQ(arena, oracle::InitialWeights(graph.layout(), 11)) << layer;
  }
}

TEST(Initializer, OnlyWeightsAreOrthogonal) {
  try {
    (void)GraphOf("dense { units: 2 bias { initializer { type: ORTHOGONAL } } }", {1, 1, 3});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("layer \"it\" (dense): bias: the initializer ORTHOGONAL is "
                                        "only for weights"));
  }
}

}  // namespace
}  // namespace muster
