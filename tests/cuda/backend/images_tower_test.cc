// A tower whose batches the device makes, against one that gets them from the host.
#include <algorithm>

#include "common/base/arena.h"
#include "tests/cuda/backend/images_fixture.h"
#include "tests/nn/test_networks.h"
#include "tests/nn/tower_run.h"
#include "worker/nn/completions.h"
#include "worker/nn/device_view.h"

namespace muster {
namespace {

class CudaImagesTowerTest : public CudaImagesTest {
 protected:
  // What a tower makes of the training samples of one batch.
  struct Result {
    double loss = 0;
    std::vector<float> gradients;
    bool operator==(const Result&) const = default;
  };
  struct Step {
    std::vector<int64_t> ids;
    BatchKey key;
  };

  TowerInput InputOf(const Step& step, const Made* made) const {
    return {.count = static_cast<int64_t>(step.ids.size()),
            .images = made == nullptr ? nullptr : made->images.data(),
            .labels = made == nullptr ? nullptr : made->labels.data(),
            .sample_ids = step.ids.data(),
            .epoch = kEpoch,
            .key = step.key};
  }

  // `ahead`: what is staged after each step.
  std::vector<Result> Run(CudaOptions::Precision precision, const std::vector<Step>& steps,
                          bool on_device, const std::vector<std::vector<size_t>>& ahead = {}) {
    const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker({.precision = precision}).backend;
    backend->Enter();
    Tower tower(graph_, *backend, kSeed);
    tower.Prepare(kBatch, Mode::kTraining);
    DeviceImages images(config_, sets_, *backend, {kBatch, 0}, size_t{1} << 30);
    if (on_device) {
      images.Upload();
      tower.UseImages(Mode::kTraining, images.train());
    }
    DeviceView weights(*backend, weights_.floats());
    weights.CopyIn(0, graph_.arena_floats());
    std::vector<Result> results;
    for (size_t i = 0; i < steps.size(); ++i) {
      const Made made = AtHost(config_, *sets_.train, true, steps[i].ids);
      Arena slot(graph_.arena_floats());
      std::fill(slot.floats().begin(), slot.floats().end(), 0.0f);
      DeviceView gradients(*backend, slot.floats());
      Completions completions(*backend);
      LossSums sums;
      const DrainAtExit drain{*backend};
      tower.Forward(InputOf(steps[i], on_device ? nullptr : &made), Mode::kTraining,
                    weights.floats(), 0, nullptr, sums);
      tower.Backward(1, weights.floats(), gradients.floats(), nullptr);
      gradients.CopyOut(0, graph_.arena_floats());
      if (i < ahead.size()) {
        for (const size_t next : ahead[i]) {
          tower.Stage(InputOf(steps[next], nullptr), Mode::kTraining);
        }
      }
      completions.Then(Queue::kCopyOut, [] {});
      completions.RunAll(kPatience);
      results.push_back({sums.loss, {slot.floats().begin(), slot.floats().end()}});
    }
    return results;
  }

  std::vector<Step> Steps(int64_t count) const {
    std::vector<Step> steps;
    for (int64_t i = 0; i < count; ++i) steps.push_back({Ids(20, 3 * i), {i, 0}});
    return steps;
  }

  const Graph graph_ = reference::MakeGraph(kNetworks[0].layers, kNetworks[0].input);
  const Arena weights_ = RandomWeights(graph_);
  const config::Config config_ = ConfigOf(Everything());
  const Datasets sets_ = SetsOf({16, 14, 3});
};

TEST_F(CudaImagesTowerTest, TrainItAsThoseOfTheHostDo) {
  for (const auto precision : {CudaOptions::Precision::kFp32, CudaOptions::Precision::kBf16}) {
    const std::vector<Step> steps = Steps(3);
    const std::vector<Result> host = Run(precision, steps, false);
    EXPECT_NE(host[0], host[1]);
    EXPECT_EQ(Run(precision, steps, true), host);
  }
}

// A batch that was made ahead is the one that is computed, and one that is not wanted after all
// does no harm: another one comes first, or none is asked for twice.
TEST_F(CudaImagesTowerTest, MadeAheadAreTheSame) {
  const std::vector<Step> steps = Steps(6);
  const std::vector<Result> expected = Run(CudaOptions::Precision::kFp32, steps, true);
  // Each next one; others; one after the other; what was there already.
  EXPECT_EQ(Run(CudaOptions::Precision::kFp32, steps, true, {{1}, {4}, {5, 2, 3}, {3}, {0, 5}}),
            expected);
}

// What is made ahead needs nothing of the batch that is computed: all of it may be queued, and
// nothing has begun. No memory is allocated, and nobody waits.
TEST_F(CudaImagesTowerTest, AreMadeWithoutWaiting) {
  const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker({}).backend;
  backend->Enter();
  Tower tower(graph_, *backend, kSeed);
  tower.Prepare(kBatch, Mode::kTraining);
  DeviceImages images(config_, sets_, *backend, {kBatch, 0}, size_t{1} << 30);
  images.Upload();
  tower.UseImages(Mode::kTraining, images.train());
  DeviceView weights(*backend, weights_.floats());
  weights.CopyIn(0, graph_.arena_floats());
  const std::vector<Step> steps = Steps(4);
  LossSums sums[4];
  const auto queue = [&](size_t first) {
    for (size_t i = first; i < first + 2; ++i) {
      tower.Forward(InputOf(steps[i], nullptr), Mode::kTraining, weights.floats(), 0, nullptr,
                    sums[i]);
      if (i == first) tower.Stage(InputOf(steps[i + 1], nullptr), Mode::kTraining);
    }
  };
  queue(0);  // the first ones make what all others use
  backend->Drain();
  {
    const software_gpu::Step step;
    const software_gpu::Hold hold;
    queue(2);
  }
  backend->Drain();
  EXPECT_GT(sums[3].loss, 0);
}

}  // namespace
}  // namespace muster
