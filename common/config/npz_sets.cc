#include "common/config/npz_sets.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "common/base/error.h"
#include "common/tensors/npy_header.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostClasses = 1'000'000;

bool IsThere(const fs::path& path) {
  std::error_code ignored;  // treat unreadable paths as missing
  return fs::exists(path, ignored);
}

template <typename T>
T At(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

bool IsFloat(TensorType type) { return type == TensorType::kF32 || type == TensorType::kF64; }

// `bytes` is little-endian, like this machine.
int64_t IntegerAt(const std::byte* bytes, size_t size, bool is_signed) {
  uint64_t bits = 0;
  std::memcpy(&bits, bytes, size);
  const auto unused = static_cast<int>(8 * (sizeof bits - size));
  return is_signed ? static_cast<int64_t>(bits << unused) >> unused : static_cast<int64_t>(bits);
}

}  // namespace

NpzSets FindNpzSets(const std::string& dir) {
  std::error_code ignored;
  if (fs::is_directory(dir, ignored)) {
    const auto in = [&](const char* name) -> std::optional<NpzSet> {
      const fs::path path = fs::path(dir) / name;
      if (!IsThere(path)) return std::nullopt;
      return NpzSet{path, "x", "y"};
    };
    NpzSets sets{in("train.npz"), in("val.npz"), in("test.npz")};
    if (sets.training || sets.validation || sets.test) return sets;
    throw Error(ExitCode::kData,
                "{}: expected train.npz, with arrays x and y as numpy.savez writes them, found no "
                "such file; data.dir may also be one .npz file",
                dir);
  }
  const NpzReader reader(dir);
  const auto in = [&](const std::string& ending) -> std::optional<NpzSet> {
    if (!reader.Has("x" + ending)) return std::nullopt;
    return NpzSet{dir, "x" + ending, "y" + ending};
  };
  NpzSets sets{in("_train"), in("_val"), in("_test")};
  if (!sets.training && (reader.Has("x") || !sets.test)) sets.training = NpzSet{dir, "x", "y"};
  return sets;
}

NpzSamples SamplesIn(const NpzReader& reader, const NpzArray& x) {
  const auto fail = [&](const std::string& expected, const std::string& advice) {
    throw Error(ExitCode::kData, "{}: array {}: expected {}, found {}{}", reader.path(), x.name,
                expected, x.Text(), advice);
  };
  const size_t rank = x.shape.size();
  if (rank < 2 || rank > 4) {
    fail("[samples, features], [samples, height, width] or [samples, height, width, channels]",
         rank == 1 ? fmt::format(": store {}.reshape(-1, 1) for a single feature", x.name) : "");
  }
  constexpr int64_t kMostSide = 65536, kMostChannels = 16777216;
  const Shape shape = rank == 2   ? Shape{1, 1, x.shape[1]}
                      : rank == 3 ? Shape{x.shape[1], x.shape[2], 1}
                                  : Shape{x.shape[1], x.shape[2], x.shape[3]};
  if (x.elements == 0 || std::max(shape.height, shape.width) > kMostSide ||
      shape.channels > kMostChannels) {
    fail(fmt::format("at least one sample, with 1 to {} rows and columns and 1 to {} channels or "
                     "features",
                     kMostSide, kMostChannels),
         "");
  }
  if (x.type != TensorType::kU8 && !IsFloat(x.type)) {
    fail("uint8, float32 or float64", fmt::format(": store {}.astype(\"float32\")", x.name));
  }
  return {.count = x.shape[0],
          .shape = shape,
          .type = IsFloat(x.type) ? config::NpzData::FLOAT32 : config::NpzData::UINT8};
}

NpzLabels ReadNpzLabels(const NpzReader& reader, const std::string& y, int64_t samples) {
  const NpzArray array = reader.Describe(y);
  const auto fail = [&](const std::string& expected, const std::string& got) {
    throw Error(ExitCode::kData, "{}: array {}: expected {}, found {}", reader.path(), y, expected,
                got);
  };
  const size_t rank = array.shape.size();
  if (rank == 2 && array.shape[1] > 1) {
    fail("one number for each sample",
         fmt::format("{}: store {}.argmax(axis=1) for one-hot classes", array.Text(), y));
  }
  if ((rank != 1 && rank != 2) || array.elements != static_cast<uint64_t>(samples)) {
    fail(fmt::format("one number for each of the {} samples of x", samples), array.Text());
  }
  const char kind = NumpyType(array.type)[1];
  if (kind == 'f' && !IsFloat(array.type)) {
    fail("integers (classes), float32 or float64 (values)", array.Text());
  }
  NpzLabels found{.are_values = kind == 'f', .labels = {}};
  found.labels.reserve(array.elements);
  const auto here = [&] { return fmt::format(" at sample {}", found.labels.size()); };
  const size_t size = BytesOf(array.type);
  reader.Read(array, [&](std::span<const std::byte> piece) {
    for (size_t at = 0; at < piece.size(); at += size) {
      const std::byte* const bytes = &piece[at];
      if (found.are_values) {
        const float value =
            size == sizeof(float) ? At<float>(bytes) : static_cast<float>(At<double>(bytes));
        if (!std::isfinite(value)) {
          fail("finite values (as float32)", fmt::format("{}", value) + here());
        }
        found.labels.push_back(std::bit_cast<int32_t>(value));
        continue;
      }
      const int64_t label = IntegerAt(bytes, size, kind == 'i');
      if (label < 0 || label >= kMostClasses) {
        fail(fmt::format("classes from 0 to {}", kMostClasses - 1),
             fmt::format("{}{}: number the classes with numpy.unique({}, return_inverse=True)",
                         label, here(), y));
      }
      found.labels.push_back(static_cast<int32_t>(label));
    }
  });
  return found;
}

void ResolveNpz(config::Data& data) {
  config::NpzData& npz = *data.mutable_npz();
  const bool counts = !npz.has_classes();
  if (!counts && npz.has_height() && npz.has_width() && npz.has_channels() && npz.has_type()) {
    return;
  }
  const NpzSets sets = FindNpzSets(data.dir());
  int32_t largest = -1;
  bool has_values = false;
  for (const auto* set : {&sets.training, &sets.validation, &sets.test}) {
    if (!*set) continue;
    const NpzReader reader((*set)->file);
    const NpzSamples samples = SamplesIn(reader, reader.Describe((*set)->x));
    if (!npz.has_height()) npz.set_height(static_cast<uint32_t>(samples.shape.height));
    if (!npz.has_width()) npz.set_width(static_cast<uint32_t>(samples.shape.width));
    if (!npz.has_channels()) npz.set_channels(static_cast<uint32_t>(samples.shape.channels));
    if (!npz.has_type()) npz.set_type(samples.type);
    if (!counts) continue;
    const NpzLabels found = ReadNpzLabels(reader, (*set)->y, samples.count);
    has_values |= found.are_values;
    if (!found.are_values) largest = std::max(largest, std::ranges::max(found.labels));
  }
  if (counts && largest == 0) {
    throw Error(ExitCode::kData,
                "{}: expected at least two classes in y, numbered from 0, found only class 0; set "
                "data.npz.classes to their number, or store values to predict as float32",
                data.dir());
  }
  if (counts) npz.set_classes(has_values ? 0 : static_cast<uint32_t>(largest + 1));
}

}  // namespace muster
