// Labelled images: what a reader of some file format produces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/graph/shape.h"
#include "proto/config_fwd.h"
#include "worker/data/sample_loader.h"

namespace muster {

// Immutable after construction: any thread may read.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual Shape shape() const = 0;  // of Planes
  virtual int64_t classes() const = 0;
  virtual int32_t Label(int64_t index) const = 0;
  // Pixels in the layout [channel][row][column] (planes): the dataset's own memory, or `buffer`,
  // which is made as large as it has to be. Valid until `buffer` is used again.
  virtual std::span<const uint8_t> Planes(int64_t index, std::vector<uint8_t>& buffer) const = 0;
  // Whether Planes are what is stored, before preprocessing. Of photos they are what an evaluation
  // sees, before it is normalized.
  virtual bool stores_planes() const { return true; }
  // What makes the network's input; the dataset must outlive it. Throws Error(kUsage) for settings
  // that do not fit one another or the images.
  virtual std::unique_ptr<SampleLoader> MakeLoader(const config::Data& data) const;
  // Bytes that it keeps, or maps (is_mapped): mapped files lie in the system's cache, once for all
  // processes of the host.
  virtual size_t bytes() const = 0;
  virtual bool is_mapped() const { return false; }
  // 64-bit hash of all labels and pixels, or of what they follow from: equal on every worker, or
  // the job is refused.
  virtual uint64_t Fingerprint() const = 0;
};

struct Datasets {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;                  // null: there is none
  std::shared_ptr<const Dataset> validation = nullptr;  // null: there is none
  std::string remark = {};                              // what is odd about them, or ""
};

// 0 where there is none.
inline int64_t SizeOf(const std::shared_ptr<const Dataset>& set) {
  return set == nullptr ? 0 : set->size();
}

// Reads the sets that `data` names, or makes them from `seed` (run.seed), and holds a validation
// set back if one is wanted (data.validation_fraction). Throws Error(kData) that names the file,
// what was expected (sizes, label range) and what is there; Error(kUsage) where data.dir is not
// set.
Datasets OpenDatasets(const config::Data& data, uint64_t seed);
// For what trains nothing: the test set, or where there is none, the validation set. Files of the
// training set need not be there for a test set, and are not read: `train` may be null.
Datasets OpenEvaluatedSet(const config::Data& data, uint64_t seed);
// The set that is evaluated: the test set, or where that is absent or empty, the validation set.
const Dataset& EvaluatedSetOf(const Datasets& sets);

}  // namespace muster
