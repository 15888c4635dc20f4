#include "cli/data/count_samples.h"

#include "common/base/error.h"
#include "proto/config.pb.h"
#include "worker/data/dataset.h"

namespace muster {

DataCount CountSamples(const config::Config& config) {
  try {
    const Datasets sets = OpenDatasets(config.data(), config.run().seed());
    return {.train = sets.train->size(), .test = sets.test->size(), .remark = sets.remark};
  } catch (const Error& error) {
    return {.problem = error.what(), .code = error.code()};
  }
}

DataCount CountTestSamples(const config::Config& config) {
  try {
    return {.test = OpenTestSet(config.data(), config.run().seed()).test->size()};
  } catch (const Error& error) {
    return {.problem = error.what(), .code = error.code()};
  }
}

}  // namespace muster
