#include "worker/data/dataset.h"

#include <functional>

#include "common/base/error.h"
#include "common/config/data_format.h"
#include "proto/config.pb.h"
#include "worker/data/cifar10.h"
#include "worker/data/image_folder.h"
#include "worker/data/mnist.h"
#include "worker/data/preprocess.h"
#include "worker/data/synthetic.h"

namespace muster {
namespace {

// What reads the files of a format.
struct Reader {
  std::function<Datasets(const config::Data& data, uint64_t seed)> open;
  std::function<std::shared_ptr<const Dataset>(const config::Data& data, uint64_t seed)> open_test;
  std::string (*remedy)(const std::string& dir) = nullptr;  // null: the errors say it
};

// Wraps what opens files that need nothing but their directory.
template <typename Open>
auto InDir(Open open) {
  return [open](const config::Data& data, uint64_t /*seed*/) { return open(data.dir()); };
}

Reader ReaderOf(const config::Data& data) {
  switch (data.format()) {
    case config::Data::CIFAR10:
      return {InDir(OpenCifar10), InDir(OpenCifar10Test), Cifar10Remedy};
    case config::Data::MNIST:
      return {InDir(OpenMnist), InDir(OpenMnistTest)};
    case config::Data::IMAGE_FOLDER:
      return {OpenImageFolder, OpenImageFolderTest};
    case config::Data::NPZ:
    case config::Data::SYNTHETIC:
      break;  // has no files
  }
  throw Error(ExitCode::kUsage, "data.format: no reader for {}", static_cast<int>(data.format()));
}

// What `open` returns of the reader, or an Error that says what is wrong and what to do.
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
              "{}: expected images of {}, for which the network is laid out, found {}: set "
              "data.mnist.image_height and image_width",
              data.dir(), expected.ToString(), set.shape().ToString());
}

}  // namespace

std::unique_ptr<SampleLoader> Dataset::MakeLoader(const config::Data& data) const {
  return MakePlanesLoader(*this, data.preprocess());
}

Datasets OpenDatasets(const config::Data& data, uint64_t seed) {
  if (!NeedsFiles(data)) return MakeSynthetic(data.synthetic(), seed);
  Datasets sets = OpenFiles(data, [&](const Reader& reader) { return reader.open(data, seed); });
  CheckShape(data, *sets.train);
  return sets;
}

Datasets OpenTestSet(const config::Data& data, uint64_t seed) {
  if (!NeedsFiles(data)) return MakeSynthetic(data.synthetic(), seed);
  const std::shared_ptr<const Dataset> test =
      OpenFiles(data, [&](const Reader& reader) { return reader.open_test(data, seed); });
  CheckShape(data, *test);
  return {.train = test, .test = test};
}

}  // namespace muster
