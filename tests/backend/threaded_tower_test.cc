// A tower on an asynchronous device with delays. It has the bits of the CPU and only waits for
// events.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <future>

#include "common/base/error.h"
#include "tests/backend/threaded_backend.h"
#include "tests/nn/test_networks.h"
#include "tests/nn/tower_run.h"
#include "worker/nn/completions.h"
#include "worker/nn/device_view.h"

namespace muster::testing {
namespace threaded_tower_test {

constexpr double kPatience = 30;

// Which threads are slow. Each missing wait is detected with one of the schedules.
struct Schedule {
  const char* name;
  std::array<int, 3> delays;
};
constexpr Schedule kSchedules[] = {{"AllLate", {200, 200, 200}},
                                   {"ComputeLate", {600, 0, 0}},
                                   {"CopiesInLate", {0, 1500, 0}},
                                   {"CopiesOutLate", {0, 0, 1500}}};

// The results of a step.
struct Result {
  LossSums sums;
  std::vector<float> gradients;
};

void ExpectSame(const LossSums& got, const LossSums& expected) {
  EXPECT_EQ(got.loss, expected.loss);
  EXPECT_EQ(got.correct, expected.correct);
  EXPECT_TRUE(std::ranges::equal(got.metrics, expected.metrics));
}

class ThreadedTower : public ::testing::TestWithParam<std::tuple<NetworkCase, Schedule>> {
 protected:
  static constexpr int64_t kSteps = 3;
  static constexpr int64_t kCounts[] = {4, 3, 4};  // of the slices of a step

  Arena WeightsOf(int64_t version) const {
    Arena weights = RandomWeights(graph_);
    for (float& w : weights.floats()) w *= 1 - 0.125f * static_cast<float>(version);
    return weights;
  }
  SampleBatch BatchOf(int64_t step, size_t slice) const {
    return SampleBatch(graph_, 10 * step + 4 * static_cast<int64_t>(slice), kCounts[slice]);
  }
  // The range of a layer's variables in floats.
  std::pair<size_t, size_t> RangeOf(int layer) const {
    size_t begin = graph_.arena_floats(), end = 0;
    for (const Variable& v : graph_.variables()) {
      if (v.layer != layer) continue;
      begin = std::min(begin, v.offset);
      end = std::max(end, v.offset + v.count);
    }
    return {begin, end};
  }

  const Graph graph_ =
      reference::MakeGraph(std::get<0>(GetParam()).layers, std::get<0>(GetParam()).input);
};

// Like in a worker: chunks of weights arrive during the forward pass, several slices are queued in
// a row, and each gradient is read as soon as its copy is reported as done.
TEST_P(ThreadedTower, GivesTheBitsOfTheCpu) {
  ThreadedBackend backend({.delays = std::get<1>(GetParam()).delays});
  Tower tower(graph_, backend, kSeed, {}, /*flip=*/true);
  for (const int64_t count : kCounts) tower.Plan(count, Mode::kTraining);
  tower.Plan(5, Mode::kInference);
  tower.Allocate();
  TowerRun cpu(graph_, 1, {}, /*flip=*/true);

  std::vector<Arena> planes, slots;
  std::vector<DeviceView> weights, gradients;
  for (int i = 0; i < 2; ++i) planes.emplace_back(graph_.arena_floats());
  for (size_t i = 0; i < std::size(kCounts); ++i) slots.emplace_back(graph_.arena_floats());
  for (const Arena& plane : planes) weights.emplace_back(backend, plane.floats());
  for (Arena& slot : slots) gradients.emplace_back(backend, slot.floats());
  Completions completions(backend);
  const auto input_copied = backend.MakeEvent();
  int64_t looked_at = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    const Arena current = WeightsOf(step);
    DeviceView& plane = weights[step % 2];
    std::vector<Result> expected(std::size(kCounts));
    std::vector<LossSums> sums(std::size(kCounts));
    for (size_t s = 0; s < std::size(kCounts); ++s) {
      const Arena wanted = cpu.Step(BatchOf(step, s), current, 0.25f);
      expected[s] = {cpu.sums, {wanted.floats().begin(), wanted.floats().end()}};
    }
    for (size_t s = 0; s < std::size(kCounts); ++s) {
      SampleBatch batch = BatchOf(step, s);
      tower.Forward(
          batch.Input(), Mode::kTraining, plane.floats(), step,
          [&](int layer) {
            if (s > 0) return;
            const auto [begin, end] = RangeOf(layer);
            std::copy(current.floats().begin() + begin, current.floats().begin() + end,
                      planes[step % 2].floats().begin() + begin);
            plane.CopyIn(begin, end);
          },
          sums[s]);
      backend.Record(Queue::kCopyIn, *input_copied);
      completions.Then(Queue::kCopyOut, [&, s] { ExpectSame(sums[s], expected[s].sums); });
      tower.Backward(0.25f, plane.floats(), gradients[s].floats(), [&, s](int layer) {
        const auto [begin, end] = RangeOf(layer);
        gradients[s].CopyOut(begin, end);
        completions.Then(Queue::kCopyOut, [&, s, begin = begin, end = end] {
          ++looked_at;
          EXPECT_EQ(
              0, std::memcmp(slots[s].floats().data() + begin, expected[s].gradients.data() + begin,
                             (end - begin) * sizeof(float)));
        });
      });
      // The batch's memory is reused from here on.
      AwaitDevice(*input_copied, kPatience);
      for (float& pixel : batch.images.floats()) pixel = NAN;
      for (int32_t& label : batch.labels) label = -1;
      for (int64_t& id : batch.ids) id = -1;
    }
    completions.RunAll(kPatience);
  }
  int64_t layers = 0;
  for (const Layer& layer : graph_.layers()) layers += layer.has_variables();
  EXPECT_EQ(looked_at, kSteps * static_cast<int64_t>(std::size(kCounts)) * layers);

  // Two evaluations, including predictions.
  const Arena last = WeightsOf(kSteps - 1);
  for (int64_t first : {50, 60}) {
    const SampleBatch batch(graph_, first, 5);
    std::vector<int32_t> predictions(5, -1), wanted(5, -1);
    TowerInput input = batch.Input();
    const auto all = static_cast<size_t>(5 * graph_.outputs());
    std::vector<float> logits(all), wanted_logits(all, NAN);
    input.predictions = wanted.data();
    input.logits = wanted_logits.data();
    cpu.tower().Prepare(5, Mode::kInference);
    const LossSums expected = ForwardOf(cpu.tower(), input, Mode::kInference, last, 100);
    input.predictions = predictions.data();
    // The first time no logits are requested.
    input.logits = first == 50 ? nullptr : logits.data();
    LossSums got;
    tower.Forward(input, Mode::kInference, weights[(kSteps - 1) % 2].floats(), kSteps - 1, nullptr,
                  got);
    completions.Then(Queue::kCopyOut, [&] {
      ExpectSame(got, expected);
      EXPECT_EQ(predictions, wanted);
      if (first != 50) {
        EXPECT_EQ(logits, wanted_logits);
      }
    });
    completions.RunAll(kPatience);
  }
}

// The device is held until a whole step is queued, so the host must not wait before.
TEST_P(ThreadedTower, QueuesAWholeStepWithoutWaiting) {
  const Arena current = WeightsOf(0);
  const SampleBatch batch = BatchOf(0, 0);
  ThreadedBackend backend({.delays = {0, 0, 0}});
  Tower tower(graph_, backend, kSeed);
  tower.Prepare(batch.Input().count, Mode::kTraining);
  Arena slot(graph_.arena_floats());
  DeviceView weights(backend, current.floats()), gradients(backend, slot.floats());
  Completions completions(backend);
  LossSums sums;
  bool reported = false;
  std::promise<void> go;
  backend.Push(Queue::kCompute, [&] { go.get_future().wait(); });
  tower.Forward(
      batch.Input(), Mode::kTraining, weights.floats(), 1,
      [&](int layer) { weights.CopyIn(RangeOf(layer).first, RangeOf(layer).second); }, sums);
  completions.Then(Queue::kCopyOut, [&] { reported = true; });
  tower.Backward(1, weights.floats(), gradients.floats(), nullptr);
  gradients.CopyOut(0, graph_.arena_floats());
  completions.Then(Queue::kCopyOut, [] {});
  EXPECT_FALSE(reported);
  go.set_value();
  completions.RunAll(kPatience);
  EXPECT_TRUE(reported);
  TowerRun cpu(graph_);
  const Arena expected = cpu.Step(batch, current);
  EXPECT_EQ(0, std::memcmp(slot.floats().data(), expected.floats().data(),
                           graph_.arena_floats() * sizeof(float)));
  ExpectSame(sums, cpu.sums);
}

INSTANTIATE_TEST_SUITE_P(All, ThreadedTower,
                         ::testing::Combine(::testing::ValuesIn(kNetworks),
                                            ::testing::ValuesIn(kSchedules)),
                         [](const auto& p) {
                           return std::string(std::get<0>(p.param).name) +
                                  std::get<1>(p.param).name;
                         });

TEST(ThreadedBackendTest, AFailureOfTheDeviceIsThrownWhereAnEventIsLookedAt) {
  ThreadedBackend backend({.delays = {}});
  const auto event = backend.MakeEvent();
  EXPECT_TRUE(event->IsDone());
  float host = 1;
  backend.Zero(&host, sizeof(host));  // not an address of the device
  backend.Record(Queue::kCompute, *event);
  EXPECT_THROW((void)event->Wait(kPatience), Error);
  EXPECT_EQ(host, 1);
}

TEST(ThreadedBackendTest, WhoWaitsForADeviceThatStandsStillGivesUp) {
  ThreadedBackend backend({.delays = {}});
  std::promise<void> go;
  backend.Push(Queue::kCompute, [&] { go.get_future().wait(); });
  Completions completions(backend);
  bool called = false;
  completions.Then(Queue::kCompute, [&] { called = true; });
  try {
    completions.RunAll(0.01);
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kDeadline);
  }
  EXPECT_FALSE(called);
  go.set_value();
}

}  // namespace threaded_tower_test
}  // namespace muster::testing
