// `muster data show`: the picture has the pixels that loaders make.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <cmath>
#include <string>
#include <vector>

#include "cli/data/show_command.h"
#include "cli/view/chart.h"
#include "common/base/error.h"
#include "proto/config.pb.h"
#include "tests/data/temp_dir.h"
#include "tests/data/test_sets.h"
#include "worker/data/pipeline.h"
#include "worker/data/preprocess.h"
#include "worker/image/decode.h"

namespace muster::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kImages = 6;  // in a row of the picture

// All texts between `begin` and `end`.
std::vector<std::string> Between(const std::string& text, const std::string& begin,
                                 const std::string& end) {
  std::vector<std::string> found;
  for (size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at)) {
    at += begin.size();
    found.push_back(text.substr(at, text.find(end, at) - at));
  }
  return found;
}

// The images of a picture, [row][column][red, green, blue].
std::vector<std::vector<uint8_t>> ImagesIn(const std::string& svg) {
  std::vector<std::vector<uint8_t>> images;
  for (const std::string& text : Between(svg, "data:image/png;base64,", "\"")) {
    std::vector<uint8_t> file(text.size());
    const int size =
        EVP_DecodeBlock(file.data(), reinterpret_cast<const unsigned char*>(text.data()),
                        static_cast<int>(text.size()));
    EXPECT_GT(size, 0);
    file.resize(static_cast<size_t>(size));
    const ImageInfo info = ReadImageInfo(file);
    DecodeScratch scratch;
    Image image;
    (void)Decode(file, info, {.region = {.height = info.stored.height, .width = info.stored.width}},
                 scratch, image);
    images.push_back(image.pixels);
  }
  return images;
}

config::Config Config(const std::vector<std::string>& class_names = {}) {
  config::Config config;
  config.mutable_run()->set_seed(5);
  for (const std::string& name : class_names) config.mutable_data()->add_class_names(name);
  return config;
}

TEST(ContactSheetTest, ShowsTheFirstSamplesOfTheEpochAsTheLoaderMakesThem) {
  const MemorySet set(7, {6, 5, 3});
  config::Config config = Config({"a", "b", "<c>", "d", "e", "f", "g", "h", "i", "j"});
  config.mutable_data()->mutable_preprocess()->set_flip(true);
  const std::string svg = ContactSheet(set, config, /*samples=*/2, /*epoch=*/3);
  const auto images = ImagesIn(svg);
  ASSERT_EQ(images.size(), 2 * kImages);
  const std::vector<int64_t> order = EpochOrder(7, 5, 3);
  const auto loader = MakePlanesLoader(set, config.data().preprocess());
  const auto scratch = loader->MakeScratch();
  std::vector<float> image(6 * 5 * 3);
  for (size_t row = 0; row < 2; ++row) {
    for (int64_t column = 0; column < kImages; ++column) {
      if (column == 0) {
        loader->Evaluate(order[row], *scratch, image.data());
      } else {
        loader->Train(order[row], 5, 3 + column - 1, *scratch, image.data());
      }
      std::vector<uint8_t> expected;
      expected.reserve(image.size());
      for (const float x : image) expected.push_back(static_cast<uint8_t>(std::lround(x * 255)));
      EXPECT_EQ(images[row * kImages + static_cast<size_t>(column)], expected);
    }
    const std::string name = config.data().class_names(set.Label(order[row]));
    EXPECT_THAT(svg, HasSubstr((name == "<c>" ? "&lt;c&gt;" : name) + " (sample " +
                               std::to_string(order[row]) + ")"));
  }
  EXPECT_THAT(svg, HasSubstr("epoch 7<"));
  EXPECT_THAT(svg, Not(HasSubstr("epoch 8<")));
}

TEST(ContactSheetTest, AFewSamplesAreAllShownAndOneChannelIsGrey) {
  const MemorySet set(2, {4, 4, 1});
  const auto images = ImagesIn(ContactSheet(set, Config(), 8, 0));
  ASSERT_EQ(images.size(), 2 * kImages);
  const int64_t first = EpochOrder(2, 5, 0)[0];
  for (size_t i = 0; i < 16; ++i) {
    for (size_t color = 0; color < 3; ++color) {
      EXPECT_EQ(images[0][3 * i + color], PlanesOf(set, first)[i]);
    }
  }
}

TEST(ThumbnailsTest, ShowTheMeansOfSquares) {
  config::Config config = Config();
  config.mutable_data()->set_format(config::Data::SYNTHETIC);
  config.mutable_data()->mutable_preprocess()->set_standardize(false);
  auto& synthetic = *config.mutable_data()->mutable_synthetic();
  synthetic.set_height(120);
  synthetic.set_width(301);  // a third is 100, and a column is left over
  synthetic.set_channels(1);
  synthetic.set_test_samples(4);
  const Datasets sets = OpenDatasets(config.data(), 5);
  const auto loader = sets.test->MakeLoader(config.data());
  std::vector<float> image(120 * 301);
  loader->Evaluate(3, *loader->MakeScratch(), image.data());
  const std::vector<Thumbnail> pictures = Thumbnails(config, false, {1, 3});
  ASSERT_EQ(pictures.size(), 2u);
  const std::vector<uint8_t> small = ImagesIn(pictures[1].url + "\"").at(0);
  ASSERT_EQ(small.size(), size_t{3 * 40 * 100});
  for (size_t y = 0; y < 40; ++y) {
    for (size_t x = 0; x < 100; ++x) {
      double sum = 0;
      for (size_t i = 0; i < 9; ++i) sum += image[(3 * y + i / 3) * 301 + 3 * x + i % 3];
      ASSERT_NEAR(small[3 * (y * 100 + x)], sum / 9 * 255, 0.51);
    }
  }
}

// Like a set of photos or arrays.
class NormalizedLoader final : public SampleLoader {
 public:
  explicit NormalizedLoader(std::vector<float> values) : values_(std::move(values)) {}
  Shape shape() const override { return {1, 1, static_cast<int64_t>(values_.size())}; }
  std::unique_ptr<LoaderScratch> MakeScratch() const override {
    return std::make_unique<LoaderScratch>();
  }
  void Train(int64_t, uint64_t, int64_t, LoaderScratch& scratch, ImageTarget image) const override {
    Evaluate(0, scratch, image);
  }
  void Evaluate(int64_t, LoaderScratch&, ImageTarget image) const override {
    std::ranges::copy(values_, std::get<float*>(image));
  }

 private:
  const std::vector<float> values_;
};

class NormalizedSet final : public Dataset {
 public:
  explicit NormalizedSet(std::vector<float> values) : values_(std::move(values)) {}
  int64_t size() const override { return 1; }
  Shape shape() const override { return {1, 1, static_cast<int64_t>(values_.size())}; }
  int64_t classes() const override { return 2; }
  int32_t Label(int64_t) const override { return 0; }
  std::span<const uint8_t> Planes(int64_t, std::vector<uint8_t>&) const override { return {}; }
  std::unique_ptr<SampleLoader> MakeLoader(const config::Data&) const override {
    return std::make_unique<NormalizedLoader>(values_);
  }
  size_t bytes() const override { return 0; }
  uint64_t Fingerprint() const override { return 0; }

 private:
  const std::vector<float> values_;
};

TEST(ContactSheetTest, MeanAndStddevAreTakenBack) {
  // Photos are divided by 255 before, bytes of other formats are not.
  for (const auto& [format, unit] :
       {std::pair{config::Data::IMAGE_FOLDER, 1.0}, {config::Data::CIFAR10, 255.0}}) {
    config::Config config = Config();
    config.mutable_data()->set_format(format);
    for (const double x : {0.5, 0.5, 0.25}) {
      config.mutable_data()->mutable_preprocess()->add_mean(x * unit);
      config.mutable_data()->mutable_preprocess()->add_stddev(x * unit);
    }
    const auto images = ImagesIn(ContactSheet(NormalizedSet({-1, 1, 1}), config, 1, 0));
    // 0, 1 and 0.5 in a row of three grey pixels.
    EXPECT_EQ(images.at(0), (std::vector<uint8_t>{0, 0, 0, 255, 255, 255, 128, 128, 128}));
  }
}

TEST(ContactSheetTest, NumbersOfAnotherUnitAreShownFromTheSmallestToTheLargest) {
  const auto images = ImagesIn(ContactSheet(NormalizedSet({-100, 300, 100, 300}), Config(), 1, 0));
  EXPECT_EQ(images.at(0),
            (std::vector<uint8_t>{0, 0, 0, 255, 255, 255, 128, 128, 128, 255, 255, 255}));
  EXPECT_EQ(ImagesIn(ContactSheet(NormalizedSet({7, 7}), Config(), 1, 0)).at(0),
            std::vector<uint8_t>(6, 0));
  // Many numbers would make an invisible line.
  EXPECT_THAT(ContactSheet(NormalizedSet(std::vector<float>(784)), Config(), 1, 0),
              HasSubstr("width=\"256\" height=\"16\""));
}

TEST(ShowTest, ReplacesAPictureAndRefusesOtherNames) {
  const TempDir dir;
  const std::string config = dir / "c.txtpb", output = dir / "samples.svg";
  WriteBytes(config,
             "run { steps: 1 global_batch: 8 } data { format: SYNTHETIC }\n"
             "model { layer { name: 'c' dense { units: 10 } }\n"
             "  layer { name: 'loss' softmax_cross_entropy {} } }\n"
             "learning_rate { base: 0.1 }\n");
  WriteBytes(output, kSvgBeginning);
  const ShowArguments arguments{.config_path = config, .output = output, .samples = 3};
  EXPECT_EQ(RunShow(arguments), 0);
  const std::string svg = ReadBytes(output);
  EXPECT_EQ(ImagesIn(svg).size(), 3 * kImages);
  EXPECT_EQ(ImagesIn(svg)[0].size(), 3u * 32 * 32);
  for (const std::string& name : {config, std::string(dir / "no" / "samples.svg")}) {
    ShowArguments wrong = arguments;
    wrong.output = name;
    EXPECT_THROW((void)RunShow(wrong), Error) << name;
  }
  ShowArguments wrong = arguments;
  wrong.settings = {{"data.format", "MNIST", "--set"}, {"data.dir", dir / "no", "--set"}};
  EXPECT_THROW((void)RunShow(wrong), Error);
  EXPECT_EQ(ReadBytes(output), svg);
}

}  // namespace
}  // namespace muster::testing
