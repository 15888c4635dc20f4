#include "worker/data/npz_data.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/base/reflected.h"
#include "common/config/data_format.h"
#include "common/config/npz_sets.h"
#include "worker/data/preprocess.h"
#include "worker/data/validation_split.h"

namespace muster {
namespace {

// x and y in memory, [sample][row][column][channel]. Only one of `bytes` and `floats` is used.
struct Arrays {
  NpzSamples samples;
  std::vector<uint8_t> bytes;
  std::vector<float> floats;
  std::vector<int32_t> labels;

  template <typename T>
  std::span<const T> Sample(const std::vector<T>& all, int64_t index) const {
    MUSTER_CHECK(0 <= index && index < samples.count);
    const auto size = static_cast<size_t>(samples.shape.elements());
    return std::span(all).subspan(static_cast<size_t>(index) * size, size);
  }
};

class FloatLoader final : public SampleLoader {
 public:
  FloatLoader(const Arrays& arrays, const config::Preprocess& settings)
      : arrays_(arrays),
        settings_(settings),
        shape_(CropShape(settings, arrays.samples.shape)),
        maps_(static_cast<size_t>(shape_.channels)) {
    for (size_t i = 0; i < maps_.size(); ++i) {
      const int channel = static_cast<int>(i);
      if (settings.mean_size() > 0) maps_[i].mean = settings.mean(channel);
      if (settings.stddev_size() > 0) maps_[i].stddev = settings.stddev(channel);
    }
  }

  Shape shape() const override { return shape_; }
  std::unique_ptr<LoaderScratch> MakeScratch() const override {
    return std::make_unique<LoaderScratch>();
  }
  void Train(int64_t sample, uint64_t seed, int64_t epoch, LoaderScratch& /*scratch*/,
             ImageTarget image) const override {
    const Shape& stored = arrays_.samples.shape;
    Apply(sample, DrawAugmentation(settings_, stored, seed, epoch, sample),
          std::get<float*>(image));
  }
  void Evaluate(int64_t sample, LoaderScratch& /*scratch*/, ImageTarget image) const override {
    Apply(sample, CentreCrop(settings_, arrays_.samples.shape), std::get<float*>(image));
  }

 private:
  struct Map {
    double mean = 0, stddev = 1;
    float operator()(float x) const { return static_cast<float>((x - mean) / stddev); }
  };

  void Apply(int64_t sample, const Augmentation& choices, float* image) const {
    const std::span<const float> stored = arrays_.Sample(arrays_.floats, sample);
    const Shape& from = arrays_.samples.shape;
    for (int64_t row = 0; row < shape_.height; ++row) {
      for (int64_t column = 0; column < shape_.width; ++column) {
        int64_t y = choices.top + row;
        int64_t x = choices.left + (choices.flip ? shape_.width - 1 - column : column);
        if (settings_.padding() == config::Preprocess::REFLECT) {
          y = Reflected(y, from.height);
          x = Reflected(x, from.width);
        }
        const bool inside = 0 <= y && y < from.height && 0 <= x && x < from.width;
        const float* pixel = inside ? &stored[(y * from.width + x) * from.channels] : nullptr;
        for (size_t i = 0; i < maps_.size(); ++i) *image++ = maps_[i](inside ? pixel[i] : 0);
      }
    }
  }

  const Arrays& arrays_;
  const config::Preprocess settings_;
  const Shape shape_;
  std::vector<Map> maps_;  // for each channel
};

class NpzDataset final : public Dataset {
 public:
  NpzDataset(Arrays arrays, const config::Data& data)
      : arrays_(std::move(arrays)), classes_(DataClasses(data)) {}

  int64_t size() const override { return arrays_.samples.count; }
  Shape shape() const override { return arrays_.samples.shape; }
  int64_t classes() const override { return classes_; }
  int32_t Label(int64_t index) const override {
    MUSTER_CHECK(0 <= index && index < size());
    return arrays_.labels[static_cast<size_t>(index)];
  }

  std::span<const uint8_t> Planes(int64_t index, std::vector<uint8_t>& buffer) const override {
    if (arrays_.floats.empty()) {
      return InPlanes(
          arrays_.Sample(arrays_.bytes, index), [](uint8_t x) { return x; }, buffer);
    }
    // For display, maps the sample's smallest value to black and its largest to white.
    const std::span<const float> sample = arrays_.Sample(arrays_.floats, index);
    const auto [least, largest] = std::ranges::minmax(sample);
    const double low = least, range = std::max<double>(largest - low, FLT_MIN);
    return InPlanes(
        sample, [&](float x) { return static_cast<uint8_t>((x - low) / range * 255); }, buffer);
  }
  bool stores_planes() const override { return arrays_.floats.empty(); }
  std::unique_ptr<SampleLoader> MakeLoader(const config::Data& data) const override {
    if (arrays_.floats.empty()) return MakePlanesLoader(*this, data.preprocess());
    return std::make_unique<FloatLoader>(arrays_, data.preprocess());
  }

  size_t bytes() const override {
    return arrays_.bytes.size() + arrays_.floats.size() * sizeof(float) +
           arrays_.labels.size() * sizeof(int32_t);
  }

  uint64_t Fingerprint() const override {
    std::call_once(fingerprint_once_, [this] {
      const uint64_t labels =
          XXH3_64bits(arrays_.labels.data(), arrays_.labels.size() * sizeof(int32_t));
      fingerprint_ = arrays_.floats.empty()
                         ? XXH3_64bits_withSeed(arrays_.bytes.data(), arrays_.bytes.size(), labels)
                         : XXH3_64bits_withSeed(arrays_.floats.data(),
                                                arrays_.floats.size() * sizeof(float), labels);
    });
    return fingerprint_;
  }

 private:
  template <typename T, typename ToByte>
  std::span<const uint8_t> InPlanes(std::span<const T> pixels, const ToByte& to_byte,
                                    std::vector<uint8_t>& buffer) const {
    const auto channels = static_cast<size_t>(shape().channels);
    const size_t count = pixels.size() / channels;
    buffer.resize(pixels.size());
    for (size_t channel = 0; channel < channels; ++channel) {
      for (size_t i = 0; i < count; ++i) {
        buffer[channel * count + i] = to_byte(pixels[i * channels + channel]);
      }
    }
    return buffer;
  }

  const Arrays arrays_;
  const int64_t classes_;
  mutable std::once_flag fingerprint_once_;
  mutable uint64_t fingerprint_ = 0;
};

std::string TypeName(config::NpzData::Type type) {
  return type == config::NpzData::UINT8 ? "uint8" : "float32";
}

void CheckSamples(const NpzReader& reader, const std::string& x, const NpzSamples& found,
                  const config::Data& data) {
  const Shape expected = StoredShape(data);
  const config::NpzData::Type type = data.npz().has_type() ? data.npz().type() : found.type;
  if (found.shape == expected && found.type == type) return;
  throw Error(
      ExitCode::kData,
      "{}: array {}: expected samples of {} {}, the network's input, found {} {} (see data.npz)",
      reader.path(), x, expected.ToString(), TypeName(type), found.shape.ToString(),
      TypeName(found.type));
}

void CheckFinite(const std::string& path, const NpzArray& x, const Arrays& arrays) {
  const auto wrong =
      std::ranges::find_if(arrays.floats, [](float value) { return !std::isfinite(value); });
  if (wrong == arrays.floats.end()) return;
  const int64_t at = wrong - arrays.floats.begin(), size = arrays.samples.shape.elements();
  throw Error(ExitCode::kData,
              "{}: array {}: expected finite numbers (as float32), found {} at sample {}, value {} "
              "of {}: remove such samples or replace the values",
              path, x.name, *wrong, at / size, at % size, size);
}

void ReadSamples(const NpzReader& reader, const NpzArray& x, Arrays& arrays) {
  if (x.type == TensorType::kU8) {
    arrays.bytes.reserve(x.elements);
  } else {
    arrays.floats.reserve(x.elements);
  }
  const auto add = [&]<typename T>(std::vector<T>& to, std::span<const std::byte> piece) {
    const size_t at = to.size();
    to.resize(at + piece.size() / sizeof(T));
    std::memcpy(&to[at], piece.data(), piece.size());
  };
  std::vector<double> doubles;
  reader.Read(x, [&](std::span<const std::byte> piece) {
    if (x.type == TensorType::kU8) return add(arrays.bytes, piece);
    if (x.type == TensorType::kF32) return add(arrays.floats, piece);
    doubles.clear();
    add(doubles, piece);
    for (const double value : doubles) arrays.floats.push_back(static_cast<float>(value));
  });
  CheckFinite(reader.path(), x, arrays);
}

void CheckLabels(const NpzReader& reader, const NpzSet& set, const NpzLabels& found,
                 const config::Data& data) {
  const auto fail = [&](const std::string& expected, const std::string& got) {
    throw Error(ExitCode::kData, "{}: array {}: expected {}, found {}", reader.path(), set.y,
                expected, got);
  };
  const int64_t classes = DataClasses(data);
  if (found.are_values != HasValues(data)) {
    fail(HasValues(data) ? "float32 values as in the other files (data.npz.classes is 0)"
                         : fmt::format("integers for {} classes (data.npz.classes)", classes),
         found.are_values
             ? fmt::format("values: store {}.astype(\"int64\") if they are classes", set.y)
             : "integers");
  }
  if (found.are_values) return;
  const auto wrong = std::ranges::find_if(found.labels, [&](int32_t x) { return x >= classes; });
  if (wrong == found.labels.end()) return;
  fail(fmt::format("classes from 0 to {} (data.npz.classes)", classes - 1),
       fmt::format("{} at sample {}", *wrong, wrong - found.labels.begin()));
}

// `set.y` may be empty.
std::shared_ptr<const Dataset> OpenSet(const NpzSet& set, const config::Data& data) {
  const NpzReader reader(set.file);
  const NpzArray x = reader.Describe(set.x);
  Arrays arrays{.samples = SamplesIn(reader, x)};
  CheckSamples(reader, set.x, arrays.samples, data);
  if (set.y.empty()) {
    arrays.labels.resize(static_cast<size_t>(arrays.samples.count));
  } else {
    NpzLabels labels = ReadNpzLabels(reader, set.y, arrays.samples.count);
    CheckLabels(reader, set, labels, data);
    arrays.labels = std::move(labels.labels);
  }
  ReadSamples(reader, x, arrays);
  return std::make_shared<NpzDataset>(std::move(arrays), data);
}

std::shared_ptr<const Dataset> OpenIfThere(const std::optional<NpzSet>& set,
                                           const config::Data& data) {
  return set ? OpenSet(*set, data) : nullptr;
}

std::string RemarkOn(const NpzSets& sets, const config::Data& data) {
  const config::Preprocess& settings = data.preprocess();
  std::string remark;
  if (settings.standardize() && data.npz().type() == config::NpzData::UINT8 &&
      settings.mean_size() + settings.stddev_size() > 0) {
    remark = "data.preprocess.mean and stddev have no effect with standardize";
  }
  if (sets.validation && data.validation_fraction() > 0) {
    remark += fmt::format("{}data.validation_fraction has no effect because of {} of {}",
                          remark.empty() ? "" : "; ", sets.validation->x, sets.validation->file);
  }
  return remark;
}

}  // namespace

Datasets OpenNpz(const config::Data& data) {
  const NpzSets sets = FindNpzSets(data.dir());
  const bool can_evaluate = sets.validation || sets.test || data.validation_fraction() > 0;
  if (!sets.training || !can_evaluate) {
    throw Error(ExitCode::kData, "{}: expected arrays for {}, found none: {}", data.dir(),
                sets.training ? "evaluation" : "training",
                sets.training ? "add val.npz or test.npz, or x_test and y_test, or set "
                                "data.validation_fraction"
                              : "add train.npz, or x_train and y_train");
  }
  return {.train = OpenSet(*sets.training, data),
          .test = OpenIfThere(sets.test, data),
          .validation = OpenIfThere(sets.validation, data),
          .remark = RemarkOn(sets, data)};
}

Datasets OpenNpzTest(const config::Data& data, uint64_t seed) {
  const NpzSets sets = FindNpzSets(data.dir());
  if (sets.test) return {.train = nullptr, .test = OpenSet(*sets.test, data)};
  if (sets.validation) {
    return {.train = nullptr, .test = nullptr, .validation = OpenSet(*sets.validation, data)};
  }
  Datasets all{.train = OpenSet(*sets.training, data)};
  if (data.validation_fraction() == 0) return {.train = nullptr, .test = all.train};
  HoldBack(data.validation_fraction(), seed, all);
  return {.train = nullptr, .test = nullptr, .validation = all.validation};
}

std::shared_ptr<const Dataset> OpenNpzSamples(const std::string& file, const config::Data& data) {
  return OpenSet({file, "x", ""}, data);
}

}  // namespace muster
