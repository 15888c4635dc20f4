#include "worker/data/dataset.h"

#include <functional>

#include "common/base/error.h"
#include "common/config/data_format.h"
#include "proto/config.pb.h"
#include "worker/data/cifar10.h"
#include "worker/data/image_folder.h"
#include "worker/data/mnist.h"
#include "worker/data/npz_data.h"
#include "worker/data/preprocess.h"
#include "worker/data/synthetic.h"
#include "worker/data/validation_split.h"

namespace muster {
namespace {

// The reader of a data format.
struct Reader {
  std::function<Datasets(const config::Data& data, uint64_t seed)> open;
  // Returns only the set for OpenEvaluatedSet.
  std::function<Datasets(const config::Data& data, uint64_t seed)> open_test;
  std::string (*remedy)(const std::string& dir) = nullptr;  // null: the errors contain the advice
};

// Adapts functions that need only the directory.
template <typename Open>
auto InDir(Open open) {
  return [open](const config::Data& data, uint64_t /*seed*/) { return open(data.dir()); };
}

template <typename Open>
auto OnlyTest(Open open) {
  return [open](const config::Data& data, uint64_t /*seed*/) {
    return Datasets{.train = nullptr, .test = open(data.dir())};
  };
}

Reader ReaderOf(const config::Data& data) {
  switch (data.format()) {
    case config::Data::CIFAR10:
      return {InDir(OpenCifar10), OnlyTest(OpenCifar10Test), Cifar10Remedy};
    case config::Data::MNIST:
      return {[](const config::Data& of, uint64_t) { return OpenMnist(of.dir(), MnistSetOf(of)); },
              [](const config::Data& of, uint64_t) {
                return Datasets{.train = nullptr, .test = OpenMnistTest(of.dir(), MnistSetOf(of))};
              }};
    case config::Data::IMAGE_FOLDER:
      return {OpenImageFolder, OpenImageFolderTest};
    case config::Data::NPZ:
      return {[](const config::Data& of, uint64_t) { return OpenNpz(of); }, OpenNpzTest};
    case config::Data::SYNTHETIC:
      break;  // has no files
  }
  throw Error(ExitCode::kUsage, "data.format: no reader for {}", static_cast<int>(data.format()));
}

// Calls `open` with the reader for the format, and adds advice to its errors.
template <typename Open>
auto OpenFiles(const config::Data& data, const Open& open) {
  RequireDataDir(data);
  const Reader reader = ReaderOf(data);
  try {
    return open(reader);
  } catch (const Error& error) {
    if (reader.remedy == nullptr) throw;
    throw Error(error.code(), "{}. {}", error.what(), reader.remedy(data.dir()));
  }
}

void CheckShape(const config::Data& data, const Dataset& set) {
  const Shape expected = StoredShape(data);
  if (set.shape() == expected) return;
  throw Error(ExitCode::kData,
              "{}: expected images of {}, the network's input shape, found {}: set "
              "data.mnist.image_height and image_width",
              data.dir(), expected.ToString(), set.shape().ToString());
}

}  // namespace

std::unique_ptr<SampleLoader> Dataset::MakeLoader(const config::Data& data) const {
  return MakePlanesLoader(*this, data.preprocess());
}

Datasets OpenDatasets(const config::Data& data, uint64_t seed) {
  Datasets sets;
  if (NeedsFiles(data)) {
    sets = OpenFiles(data, [&](const Reader& reader) { return reader.open(data, seed); });
    CheckShape(data, *sets.train);
  } else {
    sets = MakeSynthetic(data.synthetic(), seed);
  }
  const bool has_validation = sets.validation != nullptr;
  if (data.validation_fraction() > 0 && !has_validation) {
    HoldBack(data.validation_fraction(), seed, sets);
  }
  return sets;
}

Datasets OpenEvaluatedSet(const config::Data& data, uint64_t seed) {
  if (!NeedsFiles(data)) return OpenDatasets(data, seed);
  Datasets sets =
      OpenFiles(data, [&](const Reader& reader) { return reader.open_test(data, seed); });
  CheckShape(data, EvaluatedSetOf(sets));
  return sets;
}

const Dataset& EvaluatedSetOf(const Datasets& sets) {
  return SizeOf(sets.test) > 0 || sets.validation == nullptr ? *sets.test : *sets.validation;
}

}  // namespace muster
