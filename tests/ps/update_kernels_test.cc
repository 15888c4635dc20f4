// Every version of the update that this processor supports has the bits of the scalar one: each
// kernel separately, and whole updates by every optimizer.
#include "ps/update/update_kernels.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "common/base/denormals.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/random.h"
#include "ps/update/average_gradient.h"
#include "ps/update/choose_kernels.h"
#include "ps/update/thread_pool.h"
#include "tests/ps/update_run.h"

namespace muster::testing {
namespace {

const size_t kLengths[] = {0, 1, 3, 7, 8, 15, 16, 17, 31, 33, 63, 100, 1000, 1023, 1024};

// Values of many magnitudes, denormals, zeros of both signs, and optionally infinities and NaN.
std::vector<float> Rough(uint32_t stream, size_t size, bool finite = true) {
  std::vector<float> values(size);
  for (size_t i = 0; i < size; ++i) {
    const auto block = RandomStream(1, RandomPurpose::kSynthetic, stream, 0, i).Block(0);
    values[i] = (ToUniform(block[0]) - 0.5f) *
                std::exp2(static_cast<float>(static_cast<int>(block[1] % 40) - 30));
    if (block[2] % 16 == 0) values[i] = block[2] % 32 == 0 ? 0.0f : -0.0f;
    if (block[2] % 16 == 1) values[i] = 1e-41f;
    if (!finite && block[2] % 64 == 2) values[i] = std::numeric_limits<float>::infinity();
    if (!finite && block[2] % 64 == 3) values[i] = std::numeric_limits<float>::quiet_NaN();
  }
  return values;
}

// Settings for each type, including RMSPROP's other formula.
std::vector<std::string> EveryOptimizer() {
  std::vector<std::string> settings = OptimizerTypes();
  settings.emplace_back("RMSPROP momentum: 0.5");
  for (std::string& one : settings) one.insert(0, "type: ");
  return settings;
}

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

class UpdateKernelsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (versions_.size() == 1) GTEST_SKIP() << "this processor supports only the SCALAR version";
    FlushDenormals();
  }
  const std::vector<const UpdateKernelTable*> versions_ = AvailableKernels();
};

// `run` returns everything that a kernel writes and returns. Ranges start `skew` floats after an
// aligned address.
void ExpectSame(const std::vector<const UpdateKernelTable*>& versions,
                const std::function<std::vector<float>(const UpdateKernelTable&, size_t length,
                                                       size_t skew, bool finite)>& run) {
  for (const size_t length : kLengths) {
    for (const size_t skew : {size_t{0}, size_t{1}, size_t{5}}) {
      for (const bool finite : {true, false}) {
        const std::vector<float> expected = run(*versions[0], length, skew, finite);
        for (const UpdateKernelTable* kernels : versions) {
          ASSERT_TRUE(SameBits(run(*kernels, length, skew, finite), expected))
              << kernels->name << ", " << length << " floats at +" << skew;
        }
      }
    }
  }
}

TEST_F(UpdateKernelsTest, CopiesAndSumsHaveTheSameBits) {
  ExpectSame(versions_, [](const UpdateKernelTable& k, size_t n, size_t skew, bool finite) {
    const std::vector<float> a = Rough(0, n + skew, finite), b = Rough(1, n + skew, finite);
    std::vector<float> out(7 * n + skew + 3);
    float* to = out.data() + skew;
    k.add(a.data() + skew, b.data() + skew, to, n);
    to[7 * n] = static_cast<float>(k.clip_values(a.data() + skew, to + n, n, 0.001f));
    k.scale(a.data() + skew, to + 2 * n, n, 0.3f);
    to[7 * n + 1] = static_cast<float>(k.copy_finite(a.data() + skew, to + 3 * n, n));
    k.stream_out(a.data() + skew, to + 4 * n, n);
    k.fence_streams();
    k.average(a.data() + skew, b.data() + skew, to + 5 * n, n, 0.99f, 0.01f);
    std::copy(b.begin(), b.begin() + static_cast<ptrdiff_t>(n), to + 6 * n);
    k.scale(to + 6 * n, to + 6 * n, n, 7);  // in place
    return out;
  });
}

TEST_F(UpdateKernelsTest, SquaresOfLinesHaveTheSameBits) {
  const std::vector<float> from = Rough(0, 1024);
  std::vector<double> expected(64), squares(64);
  versions_[0]->line_squares(from.data(), expected.data(), from.size());
  for (const UpdateKernelTable* kernels : versions_) {
    kernels->line_squares(from.data(), squares.data(), from.size());
    EXPECT_TRUE(SameBits(squares, expected)) << kernels->name;
  }
}

TEST_F(UpdateKernelsTest, UpdatesHaveTheSameBits) {
  bool two = false;  // the gradient is the sum of two addends
  const auto run = [&two](auto kernel) {
    return [kernel, &two](const UpdateKernelTable& k, size_t n, size_t skew, bool finite) {
      const std::vector<float> gradient = Rough(0, n + skew, finite), weights = Rough(1, n + skew);
      const std::vector<float> addend = Rough(3, n + skew, finite);
      std::vector<float> state = Rough(2, 2 * n + skew);
      for (float& x : state) x = std::abs(x);
      std::vector<float> out(3 * n + skew + 1);
      float* to = out.data() + skew;
      const UpdateBlock block{.count = n,
                              .gradient = gradient.data() + skew,
                              .addend = two ? addend.data() + skew : nullptr,
                              .weights = weights.data() + skew,
                              .next_weights = to,
                              .state = {state.data() + skew, state.data() + skew + n},
                              .next_state = {to + n, to + 2 * n}};
      to[3 * n] = static_cast<float>(kernel(k, block));
      return out;
    };
  };
  const UpdateCoefficients c{.rate = 0.1f,
                             .coupled_decay = 0.01f,
                             .decoupled_decay = 0.003f,
                             .momentum = 0.9f,
                             .beta1 = 0.9f,
                             .one_minus_beta1 = 0.1f,
                             .beta2 = 0.99f,
                             .one_minus_beta2 = 0.01f,
                             .root_correction2 = 0.3f,
                             .epsilon = 1e-8f};
  for (const std::string& text : EveryOptimizer()) {
    SCOPED_TRACE(text);
    const config::Optimizer settings = ParseOptimizer(text);
    for (const bool addends : {false, true}) {
      two = addends;
      ExpectSame(versions_, run([&](const UpdateKernelTable& k, UpdateBlock block) {
                   const Optimizer optimizer(settings, k);
                   for (size_t i = optimizer.state_arenas(); i < 2; ++i) block.state[i] = nullptr;
                   return optimizer.RuleFor(1, 0.1).update(block, c);
                 }));
    }
  }
  two = false;
  ExpectSame(versions_, run([](const UpdateKernelTable& k, const UpdateBlock& block) {
               return k.statistic(block, 0.1f);
             }));
  ExpectSame(versions_, run([](const UpdateKernelTable& k, const UpdateBlock& block) {
               return k.keep_frozen(block);
             }));
}

// Compares a run's buffers after a few whole updates.
TEST_F(UpdateKernelsTest, WholeUpdatesHaveTheSameBits) {
  constexpr size_t kSize = 16 * 211;
  const std::vector<Segment> segments{
      {.begin = 0, .end = 48, .weight_decay = 0.01f},
      {.begin = 48, .end = 1600, .weight_decay = 0.1f, .rate_multiplier = 2},
      {.begin = 1600, .end = 1616, .kind = Segment::Kind::kStatistic, .statistic_momentum = 0.1f},
      {.begin = 1616, .end = 1648, .kind = Segment::Kind::kFrozen},
      {.begin = 1648, .end = kSize}};
  for (const std::string& text : EveryOptimizer()) {
    for (const auto& [stream, more] : {std::pair(false, ""), std::pair(true, ""),
                                       std::pair(true, " ema_decay: 0.9 clip_value: 0.01")}) {
      std::vector<float> expected;
      for (const UpdateKernelTable* kernels : versions_) {
        UpdateRun run(ParseOptimizer(text + more), Rough(0, kSize), segments, *kernels);
        run.stream = stream;
        for (uint32_t step = 1; step <= 5; ++step) {
          ASSERT_TRUE(run.Step(step, 0.1, Rough(step, kSize), 16 * step, 0.5f)) << text;
        }
        std::vector<float> all = run.weights;
        for (const auto* more : {&run.state[0], &run.state[1], &run.average}) {
          all.insert(all.end(), more->begin(), more->end());
        }
        if (kernels == versions_[0]) expected = all;
        ASSERT_TRUE(SameBits(all, expected)) << kernels->name << ", " << text;
      }
    }
  }
}

TEST_F(UpdateKernelsTest, SumsOfPartsAndNormsHaveTheSameBits) {
  constexpr size_t kSize = 16 * 211;
  const TreeSum tree({{0, 0}, {0, 1}, {0, 2}, {0, 3}, {0, 4}}, 5);
  std::vector<float> parts[5];
  for (uint32_t p = 0; p < 5; ++p) parts[p] = Rough(p, kSize);
  const std::vector<Segment> segments{{.begin = 0, .end = kSize}};
  std::vector<float> expected;
  uint64_t expected_norm = 0;
  for (const UpdateKernelTable* kernels : versions_) {
    std::vector<float> averaged(kSize);
    std::vector<double> squares(kSize / kLineFloats);
    ASSERT_TRUE(AverageGradient({.kernels = *kernels,
                                 .chunk = {0, kSize, 0, 0},
                                 .gradient = {&tree,
                                              wire::FP32,
                                              {parts[0].data(), parts[1].data(), nullptr,
                                               parts[3].data(), parts[4].data()}},
                                 .segments = segments,
                                 .averaged = averaged,
                                 .line_squares = squares}));
    const auto norm = std::bit_cast<uint64_t>(GradientNorm(squares));
    if (kernels == versions_[0]) {
      expected = averaged;
      expected_norm = norm;
    }
    EXPECT_TRUE(SameBits(averaged, expected)) << kernels->name;
    EXPECT_EQ(norm, expected_norm) << kernels->name;
  }
}

TEST(InstructionSet, AutoIsTheWidestAndOthersGoByName) {
  const std::vector<const UpdateKernelTable*> available = AvailableKernels();
  EXPECT_EQ(&ChooseKernels(config::Server::AUTO), available.back());
  EXPECT_STREQ(ChooseKernels(config::Server::SCALAR).name, "SCALAR");
  for (const auto wanted : {config::Server::AVX2, config::Server::AVX512}) {
    const std::string name = config::Server::InstructionSet_Name(wanted);
    const bool there =
        std::any_of(available.begin(), available.end(),
                    [&](const UpdateKernelTable* kernels) { return kernels->name == name; });
    if (there) {
      EXPECT_EQ(ChooseKernels(wanted).name, name);
      continue;
    }
    try {
      ChooseKernels(wanted);
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      EXPECT_THAT(error.what(),
                  ::testing::AllOf(::testing::HasSubstr(name), ::testing::HasSubstr("SCALAR")));
    }
  }
}

}  // namespace
}  // namespace muster::testing
