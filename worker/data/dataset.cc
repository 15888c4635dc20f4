#include "worker/data/dataset.h"

#include "common/error.h"
#include "worker/data/cifar10.h"

namespace muster {

Datasets OpenDatasets(const config::Data& data) {
  if (data.dir().empty()) {
    throw Error(ExitCode::kUsage,
                "data.dir is not set: expected the directory of the data set. Set it in the config "
                "or with --set data.dir=DIR.");
  }
  switch (data.format()) {
    case config::Data::CIFAR10:
      try {
        return OpenCifar10(data.dir());
      } catch (const Error& error) {
        throw Error(error.code(),
                    "{}. Get the data set with `muster data get cifar10 {}` or, where there is no "
                    "network, make a stand-in with `muster data synth {}`.",
                    error.what(), data.dir(), data.dir());
      }
  }
  MUSTER_CHECK(false);  // the parser refuses numbers that the enum does not have
}

}  // namespace muster
