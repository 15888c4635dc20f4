#include "worker/data/dataset.h"

#include "common/base/error.h"
#include "common/config/data_format.h"
#include "proto/config.pb.h"
#include "worker/data/cifar10.h"
#include "worker/data/mnist.h"
#include "worker/data/synthetic.h"

namespace muster {
namespace {

// What reads the files of a format, in a directory.
struct Reader {
  Datasets (*open)(const std::string& dir);
  std::unique_ptr<Dataset> (*open_test)(const std::string& dir);
  std::string (*remedy)(const std::string& dir) = nullptr;  // null: the errors say it
};

Reader ReaderOf(const config::Data& data) {
  switch (data.format()) {
    case config::Data::CIFAR10:
      return {OpenCifar10, OpenCifar10Test, Cifar10Remedy};
    case config::Data::MNIST:
      return {OpenMnist, OpenMnistTest};
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

Datasets OpenDatasets(const config::Data& data, uint64_t seed) {
  if (!NeedsFiles(data)) return MakeSynthetic(data.synthetic(), seed);
  Datasets sets = OpenFiles(data, [&](const Reader& reader) { return reader.open(data.dir()); });
  CheckShape(data, *sets.train);
  return sets;
}

Datasets OpenTestSet(const config::Data& data, uint64_t seed) {
  if (!NeedsFiles(data)) return MakeSynthetic(data.synthetic(), seed);
  const std::shared_ptr<const Dataset> test =
      OpenFiles(data, [&](const Reader& reader) { return reader.open_test(data.dir()); });
  CheckShape(data, *test);
  return {.train = test, .test = test};
}

}  // namespace muster
