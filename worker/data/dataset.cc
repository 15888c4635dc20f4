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

// Whether somebody keeps other things there, which no download should be mixed with.
bool HoldsOtherFiles(const std::string& dir) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with('.') && !name.starts_with("cifar-10-")) return true;
  }
  return false;
}

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
  if (!something && HoldsOtherFiles(dir)) {
    return "Other files are there. Muster reads no picture files: it reads CIFAR-10's binary "
           "files, "
           "or MNIST's (data.format MNIST). Get one of them in a folder of its own, as with "
           "`muster "
           "data get cifar10 data/cifar10`, and name that folder with --data.";
  }
  return fmt::format(
      "{} with `muster data get cifar10 {}` or, where there is no network, make a stand-in with "
      "`muster data synth {}`.",
      something ? "Move this set away, and get it again" : "Get the data set", dir, dir);
}

bool IsMnist(const config::Data& data) { return data.format() == config::Data::MNIST; }

// What `open` reads from data.dir, or an Error that says what is wrong and what to do.
template <typename Open>
auto OpenFiles(const config::Data& data, const Open& open) {
  if (data.dir().empty()) {
    throw Error(ExitCode::kUsage,
                "data.dir is not set: expected the directory of the data set. Set it in the config "
                "or with --set data.dir=DIR.");
  }
  try {
    return open();
  } catch (const Error& error) {
    if (IsMnist(data)) throw;
    throw Error(error.code(), "{}. {}", error.what(), Remedy(data.dir()));
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
  if (data.format() == config::Data::SYNTHETIC) return MakeSynthetic(data.synthetic(), seed);
  Datasets sets = OpenFiles(
      data, [&] { return IsMnist(data) ? OpenMnist(data.dir()) : OpenCifar10(data.dir()); });
  CheckShape(data, *sets.train);
  return sets;
}

Datasets OpenTestSet(const config::Data& data, uint64_t seed) {
  if (data.format() == config::Data::SYNTHETIC) return MakeSynthetic(data.synthetic(), seed);
  const std::shared_ptr<const Dataset> test = OpenFiles(data, [&] {
    return IsMnist(data) ? OpenMnistTest(data.dir()) : OpenCifar10Test(data.dir());
  });
  CheckShape(data, *test);
  return {.train = test, .test = test};
}

}  // namespace muster
