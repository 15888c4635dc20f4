#include "worker/data/mnist.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <mutex>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/text.h"
#include "worker/data/byte_reader.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTrain = "train";
constexpr const char* kTest = "t10k";

struct Published {
  const char *name, *command, *torchvision_folder;
  std::array<uint8_t, 10> first_train_labels, first_test_labels;  // tell the sets apart
};

constexpr Published kPublished[] = {
    {"MNIST", "mnist", "MNIST/raw", {5, 0, 4, 1, 9, 2, 1, 3, 1, 4}, {7, 2, 1, 0, 4, 1, 4, 9, 5, 9}},
    {"Fashion-MNIST",
     "fashion-mnist",
     "FashionMNIST/raw",
     {9, 0, 0, 3, 0, 2, 7, 2, 5, 5},
     {9, 2, 1, 1, 6, 1, 4, 6, 5, 7}}};

const Published& Of(MnistSet set) { return kPublished[static_cast<size_t>(set)]; }

struct IdxFile {
  std::string path;
  std::vector<int64_t> dimensions;
  std::vector<uint8_t> elements;
};

bool IsFrom(MnistSet set, const Dataset& found) {
  const auto begins_with = [&](const std::array<uint8_t, 10>& first) {
    bool same = found.size() >= std::ssize(first);
    for (size_t i = 0; same && i < first.size(); ++i) {
      same = found.Label(static_cast<int64_t>(i)) == first[i];
    }
    return same;
  };
  return begins_with(Of(set).first_train_labels) || begins_with(Of(set).first_test_labels);
}

uint32_t BigEndian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

IdxFile ReadIdx(const std::string& path, size_t dimensions) {
  ByteReader reader(path);
  std::vector<uint8_t> header(4 + 4 * dimensions);
  const size_t got = reader.Read(header);
  const uint32_t magic = 0x0800 | static_cast<uint32_t>(dimensions);
  if (got < header.size() || BigEndian(header.data()) != magic) {
    std::string found = "an empty file";
    if (got >= 4) {
      found = fmt::format("{:#010x}", BigEndian(header.data()));
      if (got < header.size()) found += fmt::format(" in a file of {} bytes", got);
    } else if (got > 0) {
      found = fmt::format("{} bytes", got);
    }
    throw Error(ExitCode::kData,
                "{}: expected an IDX header of {} bytes that begins with {:#010x} (unsigned bytes "
                "in {} dimension{}), found {}. The file's name does not match its contents",
                path, header.size(), magic, dimensions, dimensions == 1 ? "" : "s", found);
  }
  IdxFile file{.path = path};
  constexpr int64_t kMost = int64_t{1} << 62;  // stands for anything larger
  int64_t expected = 1;
  std::string factors;
  for (size_t d = 0; d < dimensions; ++d) {
    const int64_t extent = BigEndian(&header[4 + 4 * d]);
    if (extent == 0) {
      throw Error(ExitCode::kData, "{}: expected at least one element, found a dimension of 0",
                  path);
    }
    file.dimensions.push_back(extent);
    factors += fmt::format("{}{}", d == 0 ? "" : " x ", extent);
    expected = extent > kMost / expected ? kMost : expected * extent;
  }
  const auto fail = [&](const std::string& found) {
    throw Error(ExitCode::kData,
                "{}: expected {}{} bytes of elements after the header ({}), found {}. The file is "
                "truncated or damaged",
                path, expected == kMost ? "more than " : "", expected, factors, found);
  };
  // Checked before allocation, so that a header cannot request more memory than its file justifies.
  const int64_t room = reader.MostBytes() - static_cast<int64_t>(header.size());
  if (expected > room) fail(fmt::format("{} {}", reader.compressed() ? "at most" : "only", room));
  file.elements.resize(static_cast<size_t>(expected));
  const size_t read = reader.Read(file.elements);
  if (read < file.elements.size()) fail(fmt::format("only {}", read));
  // Reading to the end also makes zlib verify the checksum.
  std::array<uint8_t, 1> more;
  if (reader.Read(more) != 0) fail("more");
  return file;
}

class MnistDataset final : public Dataset {
 public:
  MnistDataset(IdxFile images, IdxFile labels)
      : images_(std::move(images)), labels_(std::move(labels)) {}

  int64_t size() const override { return images_.dimensions[0]; }
  Shape shape() const override { return {images_.dimensions[1], images_.dimensions[2], 1}; }
  int64_t classes() const override { return kMnistClasses; }
  int32_t Label(int64_t index) const override {
    MUSTER_CHECK(0 <= index && index < size());
    return labels_.elements[static_cast<size_t>(index)];
  }
  std::span<const uint8_t> Planes(int64_t index, std::vector<uint8_t>&) const override {
    MUSTER_CHECK(0 <= index && index < size());
    const auto pixels = static_cast<size_t>(shape().elements());
    return std::span(images_.elements).subspan(static_cast<size_t>(index) * pixels, pixels);
  }

  size_t bytes() const override { return images_.elements.size() + labels_.elements.size(); }

  uint64_t Fingerprint() const override {
    std::call_once(fingerprint_once_, [this] {
      const uint64_t labels = XXH3_64bits(labels_.elements.data(), labels_.elements.size());
      fingerprint_ = XXH3_64bits_withSeed(images_.elements.data(), images_.elements.size(), labels);
    });
    return fingerprint_;
  }

 private:
  const IdxFile images_, labels_;
  mutable std::once_flag fingerprint_once_;
  mutable uint64_t fingerprint_ = 0;
};

bool IsThere(const fs::path& path) {
  std::error_code ignored;  // an unreadable path counts as missing
  return fs::exists(path, ignored) && !fs::is_directory(path, ignored);
}

// Returns the path of the file under one of its names, or "" if there is none.
std::string Find(const fs::path& dir, const std::string& name, MnistSet set) {
  std::string dotted = name;
  dotted.replace(dotted.find("-idx"), 1, ".");
  for (const char* folder : {"", "raw", Of(set).torchvision_folder}) {
    for (const std::string& candidate : {name, name + ".gz", dotted, dotted + ".gz"}) {
      const fs::path path = dir / folder / candidate;
      if (IsThere(path)) return path.string();
    }
  }
  return "";
}

// Keras's file, which another format reads.
std::string HintAtNpz(const fs::path& dir) {
  const fs::path npz = dir.extension() == ".npz" ? dir : dir / "mnist.npz";
  if (!IsThere(npz)) return "";
  return fmt::format(", or read {0} with --data {0} --set data.format=NPZ",
                     ShellWord(npz.string()));
}

std::unique_ptr<Dataset> OpenPart(const std::string& dir, const std::string& part, MnistSet set) {
  const auto read = [&](const std::string& name, size_t dimensions) {
    const std::string path = Find(dir, name, set);
    if (path.empty()) {
      throw Error(ExitCode::kData,
                  "{}: no {} data set: expected {} or {}.gz, found neither. Download it with "
                  "`muster data get {} DIR`{}",
                  dir, Of(set).name, name, name, Of(set).command, HintAtNpz(dir));
    }
    return ReadIdx(path, dimensions);
  };
  IdxFile images = read(part + "-images-idx3-ubyte", 3);
  IdxFile labels = read(part + "-labels-idx1-ubyte", 1);
  if (labels.dimensions[0] != images.dimensions[0]) {
    throw Error(ExitCode::kData, "{}: expected {} labels (one for each image of {}), found {}",
                labels.path, images.dimensions[0], images.path, labels.dimensions[0]);
  }
  const auto wrong = std::find_if(labels.elements.begin(), labels.elements.end(),
                                  [](uint8_t label) { return label >= kMnistClasses; });
  if (wrong != labels.elements.end()) {
    throw Error(ExitCode::kData,
                "{}: expected labels from 0 to {}, found {} at label {}. The file is damaged or "
                "not from MNIST",
                labels.path, kMnistClasses - 1, *wrong, wrong - labels.elements.begin());
  }
  auto found = std::make_unique<MnistDataset>(std::move(images), std::move(labels));
  if (set == MnistSet::kFashion && IsFrom(MnistSet::kDigits, *found)) {
    throw Error(ExitCode::kData,
                "{}: expected Fashion-MNIST, because data.class_names lists clothes, found MNIST's "
                "digits in files of the same names: `muster data get fashion-mnist DIR` downloads "
                "Fashion-MNIST to another folder",
                dir);
  }
  return found;
}

}  // namespace

Datasets OpenMnist(const std::string& dir, MnistSet set) {
  Datasets sets{OpenPart(dir, kTrain, set), OpenMnistTest(dir, set)};
  if (sets.train->shape() != sets.test->shape()) {
    throw Error(ExitCode::kData, "{}: expected test images of {} as in the training set, found {}",
                dir, sets.train->shape().ToString(), sets.test->shape().ToString());
  }
  if (set == MnistSet::kDigits && IsFrom(MnistSet::kFashion, *sets.train)) {
    sets.remark = "Fashion-MNIST, not MNIST (configs/fashion_mnist.txtpb names its classes)";
  }
  return sets;
}

std::unique_ptr<Dataset> OpenMnistTest(const std::string& dir, MnistSet set) {
  return OpenPart(dir, kTest, set);
}

}  // namespace muster
