// A tower whose batches the device makes, compared with one that gets them from the host.
#include <algorithm>
#include <filesystem>
#include <map>
#include <string>

#include "common/base/memory.h"
#include "common/config/data_format.h"
#include "tests/cuda/backend/images_fixture.h"
#include "tests/data/temp_dir.h"
#include "tests/image/encode.h"
#include "tests/nn/test_networks.h"
#include "tests/nn/tower_run.h"
#include "worker/backend/backend_wrapper.h"
#include "worker/nn/completions.h"
#include "worker/nn/device_view.h"
#include "worker/trainer/locked_batches.h"

namespace muster {
namespace {

class CudaImagesTowerTest : public CudaImagesTest {
 protected:
  // The results of a tower for the training samples of one batch.
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

  // `ahead`: the batches to stage after each step.
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
    std::vector<Made> made;  // by the host
    for (const Step& step : steps) made.push_back(AtHost(config_, *sets_.train, true, step.ids));
    const auto input = [&](size_t i) { return InputOf(steps[i], on_device ? nullptr : &made[i]); };
    std::vector<Result> results;
    for (size_t i = 0; i < steps.size(); ++i) {
      Arena slot(graph_.arena_floats());
      std::fill(slot.floats().begin(), slot.floats().end(), 0.0f);
      DeviceView gradients(*backend, slot.floats());
      Completions completions(*backend);
      LossSums sums;
      const DrainAtExit drain{*backend};
      tower.Forward(input(i), Mode::kTraining, weights.floats(), 0, nullptr, sums);
      tower.Backward(1, weights.floats(), gradients.floats(), nullptr);
      gradients.CopyOut(0, graph_.arena_floats());
      if (i < ahead.size()) {
        for (const size_t next : ahead[i]) tower.Stage(input(next), Mode::kTraining);
      }
      completions.Then(Queue::kCopyOut, [] {});
      completions.RunAll(kImagePatience);
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
    const std::vector<Result> device = Run(precision, steps, true);
    EXPECT_TRUE(!kHostFuses || device == host);
    for (size_t i = 0; i < host.size(); ++i) EXPECT_NEAR(device[i].loss, host[i].loss, 1e-3);
  }
}

// A staged batch is the one that is computed. One that is used later or never does no harm.
TEST_F(CudaImagesTowerTest, MadeOrCopiedAheadAreTheSame) {
  const std::vector<Step> steps = Steps(6);
  for (const bool on_device : {true, false}) {
    const std::vector<Result> expected = Run(CudaOptions::Precision::kFp32, steps, on_device);
    // Stages the next batch; another one; several in a row; one that is staged already.
    EXPECT_EQ(
        Run(CudaOptions::Precision::kFp32, steps, on_device, {{1}, {4}, {5, 2, 3}, {3}, {0, 5}}),
        expected);
  }
}

// The GPU reads the host's batches where the pipeline made them, when it is their turn: the compute
// thread copies none.
TEST_F(CudaImagesTowerTest, OfThePipelineAreReadByTheDeviceItself) {
  const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker({}).backend;
  backend->Enter();
  Tower tower(graph_, *backend, kSeed);
  tower.Prepare(kBatch, Mode::kInference);
  DeviceView weights(*backend, weights_.floats());
  weights.CopyIn(0, graph_.arena_floats());
  const auto batches =
      LockBatches(*backend, MakeEvaluationPipeline(*sets_.train, config_.data(), kBatch, {0, 1}));
  const DrainAtExit drain{*backend};
  const PreparedBatch& batch = batches->Next(kImagePatience);
  const TowerInput input{.count = batch.count,
                         .images = batch.images,
                         .labels = batch.labels,
                         .sample_ids = batch.sample_ids,
                         .key = {0, 0}};
  const auto loss = [&] {
    LossSums sums;
    tower.Forward(input, Mode::kInference, weights.floats(), 0, nullptr, sums);
    backend->Drain();
    return sums.loss;
  };
  const double unchanged = loss();
  const Preprocessor preprocessor(config_.data().preprocess(), sets_.train->shape());
  const int64_t numbers = batch.count * preprocessor.shape().elements();
  {
    const software_gpu::Hold hold;
    tower.Stage(input, Mode::kInference);
    std::fill_n(const_cast<float*>(batch.images), numbers, 0.5f);
  }
  const double staged = loss(), changed = loss();
  EXPECT_NE(staged, unchanged);
  EXPECT_EQ(staged, changed);
}

// Bytes of photos have the same loss as their floats, copied in time or ahead.
TEST_F(CudaImagesTowerTest, OfPhotosComeAsBytes) {
  const testing::TempDir dir;
  for (int i = 0; i < kBatch; ++i) {
    const auto pixels = testing::Photo(20 + i, 30 - i, 3);
    const auto file = testing::EncodeJpeg({.height = 20 + i, .width = 30 - i, .pixels = pixels});
    const auto folder = dir.path() / (i < 6 ? "train" : "val") / std::to_string(i % 3);
    std::filesystem::create_directories(folder);
    testing::WriteBytes(folder / fmt::format("{}.jpg", i), {file.begin(), file.end()});
  }
  config::Config config;
  config::Data& data = *config.mutable_data();
  data.set_format(config::Data::IMAGE_FOLDER);
  data.set_dir(dir.string());
  config::Preprocess& preprocess = *data.mutable_preprocess();
  preprocess.set_crop_height(kNetworks[0].input.height);
  preprocess.set_crop_width(kNetworks[0].input.width);
  for (const double mean : {0.5, 0.25, 0.125}) preprocess.add_mean(mean);
  ResolveFromFiles(data);
  const Datasets sets = OpenDatasets(data, kSeed);
  for (const auto precision : {CudaOptions::Precision::kFp32, CudaOptions::Precision::kBf16}) {
    const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker({.precision = precision}).backend;
    backend->Enter();
    EXPECT_EQ(DeviceImages(config, sets, *backend, {6, 0, 3}, 0).train_by(), ImagesBy::kHostPixels);
    Tower tower(graph_, *backend, kSeed);
    tower.Prepare(6, Mode::kInference);
    DeviceView weights(*backend, weights_.floats());
    weights.CopyIn(0, graph_.arena_floats());
    const auto loss = [&](ImagesBy by, bool ahead) {
      const auto batches =
          LockBatches(*backend, MakeEvaluationPipeline(*sets.train, data, 6, {0, 1}, by));
      const DrainAtExit drain{*backend};
      const PreparedBatch& batch = batches->Next(kImagePatience);
      EXPECT_EQ(batch.pixels != nullptr, by == ImagesBy::kHostPixels);
      const TowerInput input{.count = batch.count,
                             .images = batch.images,
                             .pixels = batch.pixels,
                             .scale = batch.scale,
                             .labels = batch.labels,
                             .sample_ids = batch.sample_ids,
                             .key = {0, 0}};
      LossSums sums;
      if (ahead) tower.Stage(input, Mode::kInference);
      tower.Forward(input, Mode::kInference, weights.floats(), 0, nullptr, sums);
      backend->Drain();
      return sums.loss;
    };
    const double expected = loss(ImagesBy::kHost, false);
    EXPECT_GT(expected, 0);
    EXPECT_EQ(loss(ImagesBy::kHostPixels, false), expected);
    EXPECT_EQ(loss(ImagesBy::kHostPixels, true), expected);
    preprocess.set_erasing_probability(0.5);
    const DeviceImages erased(config, sets, *backend, {6, 0, 3}, 0);
    EXPECT_EQ(erased.train_by(), ImagesBy::kHost);
    EXPECT_EQ(erased.by(wire::VALIDATION), ImagesBy::kHostPixels);
    preprocess.clear_erasing_probability();
  }
}

// Making a batch ahead does not depend on the batch being computed: all of it can be queued before
// anything runs. Nothing is allocated, and nothing waits.
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
  queue(0);  // the first ones create what later ones reuse
  backend->Drain();
  {
    const software_gpu::Step step;
    const software_gpu::Hold hold;
    queue(2);
  }
  backend->Drain();
  EXPECT_GT(sums[3].loss, 0);
}

// Tracks how much of the computation each batch waits for before it is made.
class OrderOfInput : public BackendWrapper {
 public:
  using BackendWrapper::BackendWrapper;

  // Numbers the work queued on kCompute from now on. Returns its number.
  int Mark() { return ++known_[Queue::kCompute]; }
  // The newest mark that the last queued batch waits for.
  int waits_for() const { return waits_for_; }

  void Record(Queue queue, Event& event) override {
    events_[&event] = known_[queue];
    BackendWrapper::Record(queue, event);
  }
  void Await(Queue queue, Event& event) override {
    known_[queue] = std::max(known_[queue], events_[&event]);
    BackendWrapper::Await(queue, event);
  }
  std::unique_ptr<ImageOp> MakeImageOp(const ImageRecipe& recipe) override {
    return std::make_unique<NotedOp>(BackendWrapper::MakeImageOp(recipe), *this);
  }

 private:
  class NotedOp : public ImageOp {
   public:
    NotedOp(std::unique_ptr<ImageOp> op, OrderOfInput& order) : op_(std::move(op)), order_(order) {}
    size_t scratch_bytes(int64_t count) const override { return op_->scratch_bytes(count); }
    void Run(const ImageArgs& args) override {
      order_.waits_for_ = order_.known_[Queue::kInput];
      op_->Run(args);
    }

   private:
    const std::unique_ptr<ImageOp> op_;
    OrderOfInput& order_;
  };

  std::map<Queue, int> known_;  // the newest mark that precedes new work on a queue
  std::map<const Event*, int> events_;
  int waits_for_ = 0;
};

// The next batch waits for the last but one, whose memory it reuses, but not for the current one,
// so the GPU may make it meanwhile.
TEST_F(CudaImagesTowerTest, AreMadeWhileTheOneBeforeIsComputed) {
  OrderOfInput backend(cuda::MakeCudaWorker({}).backend);
  backend.Enter();
  Tower tower(graph_, backend, kSeed);
  tower.Prepare(kBatch, Mode::kTraining);
  DeviceImages images(config_, sets_, backend, {kBatch, 0}, size_t{1} << 30);
  images.Upload();
  tower.UseImages(Mode::kTraining, images.train());
  DeviceView weights(backend, weights_.floats());
  weights.CopyIn(0, graph_.arena_floats());
  Arena slot(graph_.arena_floats());
  DeviceView gradients(backend, slot.floats());
  const std::vector<Step> steps = Steps(6);
  std::vector<LossSums> sums(steps.size());
  const DrainAtExit drain{backend};
  int before = 0;
  for (size_t i = 0; i + 1 < steps.size(); ++i) {
    const int begin = backend.Mark();
    tower.Forward(InputOf(steps[i], nullptr), Mode::kTraining, weights.floats(), 0, nullptr,
                  sums[i]);
    tower.Backward(1, weights.floats(), gradients.floats(), nullptr);
    tower.Stage(InputOf(steps[i + 1], nullptr), Mode::kTraining);
    EXPECT_LT(backend.waits_for(), begin);
    EXPECT_EQ(backend.waits_for(), before);
    before = begin;
  }
}

}  // namespace
}  // namespace muster
