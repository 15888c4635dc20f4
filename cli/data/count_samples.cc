#include "cli/data/count_samples.h"

#include "common/base/error.h"
#include "proto/config.pb.h"
#include "worker/data/dataset.h"

namespace muster {

DataCount CountSamples(const config::Config& config) {
  try {
    const Datasets sets = OpenDatasets(config.data(), config.run().seed());
    return {.train = sets.train->size(),
            .test = SizeOf(sets.test),
            .validation = SizeOf(sets.validation),
            .remark = sets.remark};
  } catch (const Error& error) {
    return {.problem = error.what(), .code = error.code()};
  }
}

DataCount CountTestSamples(const config::Config& config) {
  try {
    const Datasets sets = OpenEvaluatedSet(config.data(), config.run().seed());
    return {.test = SizeOf(sets.test), .validation = SizeOf(sets.validation)};
  } catch (const Error& error) {
    return {.problem = error.what(), .code = error.code()};
  }
}

}  // namespace muster
