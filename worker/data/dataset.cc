#include "worker/data/dataset.h"

#include <filesystem>

#include "common/base/error.h"
#include "common/config/config.h"
#include "proto/config.pb.h"
#include "worker/data/cifar10.h"
#include "worker/data/mnist.h"
#include "worker/data/synthetic.h"

namespace muster {
namespace {

// What a person can do about CIFAR-10 data that cannot be used.
std::string Remedy(const std::string& dir) {
  std::error_code ignored;
  const std::filesystem::path path(dir);
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_directory(path, ignored)) {
    return "Give the data's directory: --data DIR, or data.dir in the config.";
  }
  const std::string found = FindCifar10(dir);
  const bool something = std::filesystem::exists(found + "/" + kCifar10TrainFiles[0], ignored) ||
                         std::filesystem::exists(found + "/" + kCifar10TestFile, ignored);
  return fmt::format(
      "{} with `muster data get cifar10 {}` or, where there is no network, make a stand-in with "
      "`muster data synth {}`.",
      something ? "Move this set away, and get it again" : "Get the data set", dir, dir);
}

Datasets OpenFiles(const config::Data& data) {
  if (data.dir().empty()) {
    throw Error(ExitCode::kUsage,
                "data.dir is not set: expected the directory of the data set. Set it in the config "
                "or with --set data.dir=DIR.");
  }
  if (data.format() == config::Data::MNIST) return OpenMnist(data.dir());
  try {
    return OpenCifar10(data.dir());
  } catch (const Error& error) {
    throw Error(error.code(), "{}. {}", error.what(), Remedy(data.dir()));
  }
}

}  // namespace

Datasets OpenDatasets(const config::Data& data, uint64_t seed) {
  if (data.format() == config::Data::SYNTHETIC) return MakeSynthetic(data.synthetic(), seed);
  Datasets sets = OpenFiles(data);
  const Shape expected = StoredShape(data);
  if (sets.train->shape() != expected) {
    throw Error(ExitCode::kData,
                "{}: expected images of {}, for which the network is laid out, found {}: set "
                "data.mnist.image_height and image_width",
                data.dir(), expected.ToString(), sets.train->shape().ToString());
  }
  return sets;
}

}  // namespace muster
