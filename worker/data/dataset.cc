#include "worker/data/dataset.h"

#include "common/config.h"
#include "common/error.h"
#include "proto/config.pb.h"
#include "worker/data/cifar10.h"
#include "worker/data/mnist.h"
#include "worker/data/synthetic.h"

namespace muster {
namespace {

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
    throw Error(error.code(),
                "{}. Get the data set with `muster data get cifar10 {}` or, where there is no "
                "network, make a stand-in with `muster data synth {}`.",
                error.what(), data.dir(), data.dir());
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
