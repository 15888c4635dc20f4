// Measures how many photos per second one core turns from JPEG bytes into normalized floats:
// decode, random resized crop, flip, resize, normalize, with and without decoding at reduced size.
// The photos are generated, with 4:2:0 subsampling and by default as large as the average ImageNet
// photo. Figures are based on this program's processor time.
//
//   image_bench --seconds 3 --width 500 --height 375 --sample 224
//
// With --data, measures training batches from a folder of photos, in wall-clock time:
//
//   image_bench --data DIR --threads 2
#include <fmt/core.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/program_options.h"
#include "common/config/data_format.h"
#include "proto/config.pb.h"
#include "tests/image/encode.h"
#include "worker/data/dataset.h"
#include "worker/data/pipeline.h"
#include "worker/image/augment.h"
#include "worker/image/crop.h"
#include "worker/image/decode.h"
#include "worker/image/resize.h"

namespace muster {
namespace {

using testing::Bytes;

constexpr int kPhotos = 16;

struct Options {
  double seconds = 2;
  int64_t height = 375, width = 500;
  int64_t sample = 224;
  std::string data;
  int64_t threads = 1;
  bool full = false;
};

Bytes MakePhoto(ImageSize size, int number) {
  // Make the photos differ by starting at different rows.
  const auto height = static_cast<int>(size.height), width = static_cast<int>(size.width);
  testing::JpegSpec spec{.height = height, .width = width, .quality = 96, .across = 2, .down = 2};
  const Bytes large = testing::Photo(height + number, width, 3);
  spec.pixels.assign(large.begin() + static_cast<ptrdiff_t>(number) * width * 3, large.end());
  return EncodeJpeg(spec);
}

// The buffers of one thread.
struct Reader {
  // Decodes the whole photo if `all` is set, otherwise only the needed region.
  void Read(const Bytes& file, SampleGeometry geometry, int64_t reduction, bool all, float* out) {
    const ImageInfo info = ReadImageInfo(file);
    const ImageBox whole{0, 0, info.shown().height, info.shown().width};
    const ImageBox region = all ? whole : NeededRegion(geometry, ResizeFilter::kBilinear);
    Decode(file, info, {.channels = 3, .region = region, .reduction = reduction}, decode, image);
    sample.resize(static_cast<size_t>(geometry.window.height * geometry.window.width * 3));
    Resize(image, geometry, ResizeFilter::kBilinear, resize, sample.data());
    normalizer.Apply(sample.data(), static_cast<int64_t>(sample.size()), out);
  }

  DecodeScratch decode;
  ResizeScratch resize;
  Image image;
  Bytes sample;
  Normalizer normalizer{std::array{0.485, 0.456, 0.406}, std::array{0.229, 0.224, 0.225}};
};

SampleGeometry Draw(const Options& options, int64_t number) {
  const RandomStream stream = ImageStream(1, 0, number);
  SampleGeometry geometry = DrawResizedCrop(kResizedCropBox, {options.sample, options.sample},
                                            {options.height, options.width}, stream);
  geometry.flip = DrawFlip(stream);
  return geometry;
}

void Run(const Options& options) {
  std::vector<Bytes> files;
  size_t bytes = 0;
  for (int i = 0; i < kPhotos; ++i) {
    files.push_back(MakePhoto({options.height, options.width}, i));
    bytes += files.back().size();
  }
  Reader reader;
  std::vector<float> out(static_cast<size_t>(options.sample * options.sample * 3)), whole(out);
  for (int i = 0; i < kPhotos; ++i) {
    reader.Read(files[i], Draw(options, i), 1, false, out.data());
    reader.Read(files[i], Draw(options, i), 1, true, whole.data());
    if (out != whole) {
      throw Error(ExitCode::kFailure,
                  "photo {}: decoding a part gives different pixels than decoding the whole", i);
    }
  }
  fmt::print("{} photos of {}x{}, {} KB each; samples of {}x{}\n", kPhotos, options.width,
             options.height, bytes / kPhotos / 1000, options.sample, options.sample);
  const auto time = [&](const char* name, bool all, bool reduced) {
    int64_t count = 0;
    const std::clock_t start = std::clock();  // of this process only
    double seconds = 0;
    do {
      const SampleGeometry geometry = Draw(options, count);
      const int64_t reduction = reduced ? LargestReduction(geometry) : 1;
      reader.Read(files[count % kPhotos], geometry, reduction, all, out.data());
      ++count;
      seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    } while (seconds < options.seconds);
    fmt::print("{:<32} {:7.0f} photos/s on one core\n", name, static_cast<double>(count) / seconds);
  };
  time("whole photo", true, false);
  time("needed part", false, false);
  time("needed part at reduced size", false, true);
}

config::Data DataOf(const Options& options) {
  config::Data data;
  data.set_format(config::Data::IMAGE_FOLDER);
  data.set_dir(options.data);
  data.set_prefetch_threads(static_cast<uint32_t>(options.threads));
  config::Preprocess& preprocess = *data.mutable_preprocess();
  preprocess.set_crop_height(static_cast<uint32_t>(options.sample));
  preprocess.set_crop_width(static_cast<uint32_t>(options.sample));
  preprocess.set_training_crop(config::Preprocess::RESIZED);
  preprocess.set_flip(true);
  preprocess.set_scaled_decoding(!options.full);
  for (const double mean : {0.485, 0.456, 0.406}) preprocess.add_mean(mean);
  for (const double stddev : {0.229, 0.224, 0.225}) preprocess.add_stddev(stddev);
  ResolveFromFiles(data);
  return data;
}

void RunOnFolder(const Options& options) {
  constexpr int64_t kBatch = 32;
  constexpr double kDeadline = 60;
  const config::Data data = DataOf(options);
  const Datasets sets = OpenDatasets(data, 1);
  const int64_t elements = sets.train->shape().elements();
  const auto pipeline =
      MakeTrainPipeline(*sets.train, {.plan = {.train_samples = sets.train->size(),
                                               .global_batch = std::min(kBatch, sets.train->size()),
                                               .total_steps = 1'000'000,
                                               .slices = 1},
                                      .slices = {{0, 1}},
                                      .seed = 1,
                                      .data = data});
  (void)pipeline->Next(kDeadline);
  int64_t count = 0;
  const auto start = std::chrono::steady_clock::now();
  std::chrono::duration<double> passed{};
  do {
    const PreparedBatch& batch = pipeline->Next(kDeadline);
    count += batch.count;
    if (!std::isfinite(batch.images[elements * batch.count - 1])) {
      throw Error(ExitCode::kFailure, "step {}: a pixel is not finite", batch.step);
    }
    passed = std::chrono::steady_clock::now() - start;
  } while (passed.count() < options.seconds);
  fmt::print("{:.1f} photos/s with {} threads\n", static_cast<double>(count) / passed.count(),
             options.threads);
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  muster::Options options;
  muster::ProgramOptions program("Measures how fast one core turns photos into random crops.");
  program.Add("--seconds", options.seconds, "duration per figure").ShowDefault();
  program.Add("--height", options.height, "height of the photos").InRange(1, 10000).ShowDefault();
  program.Add("--width", options.width, "width of the photos").InRange(1, 10000).ShowDefault();
  program.Add("--sample", options.sample, "height and width of a sample")
      .InRange(1, 4096)
      .ShowDefault();
  program.Add("--data", options.data, "folder of photos (data.format IMAGE_FOLDER)");
  program.Add("--threads", options.threads, "with --data: number of threads that prepare batches")
      .InRange(1, 64)
      .ShowDefault();
  program.AddFlag("--full", options.full, "with --data: never decode at reduced size");
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  try {
    options.data.empty() ? muster::Run(options) : muster::RunOnFolder(options);
  } catch (const muster::Error& error) {
    fmt::print(stderr, "image_bench: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
