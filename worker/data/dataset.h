// Labelled images, as produced by the reader of a file format.
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
  virtual Shape shape() const = 0;  // the shape of Planes
  virtual int64_t classes() const = 0;
  virtual int32_t Label(int64_t index) const = 0;
  // The path of a sample's file relative to data.dir, or "" if several samples share a file.
  virtual std::string FileOf(int64_t /*index*/) const { return ""; }
  // Pixels in the layout [channel][row][column] (planes), in the dataset's own memory or in
  // `buffer`, which is enlarged as needed. Valid until `buffer` is used again.
  virtual std::span<const uint8_t> Planes(int64_t index, std::vector<uint8_t>& buffer) const = 0;
  // Whether Planes are the stored pixels before preprocessing. For photos, they are instead the
  // input of an evaluation before normalization.
  virtual bool stores_planes() const { return true; }
  // Makes the loader that produces the network's input. The dataset must outlive it. Throws
  // Error(kUsage) for settings that contradict each other or the images.
  virtual std::unique_ptr<SampleLoader> MakeLoader(const config::Data& data) const;
  // The number of bytes that the dataset stores or maps (is_mapped). Mapped files share the
  // system's cache among all processes of the host.
  virtual size_t bytes() const = 0;
  virtual bool is_mapped() const { return false; }
  // A 64-bit hash of all labels and pixels, or of what determines them. If the hashes of the
  // workers differ, the job is refused.
  virtual uint64_t Fingerprint() const = 0;
  // A hash of what the fingerprint leaves out because a run may be resumed without it. It must not
  // differ between workers, either. Throws Error if a file cannot be read.
  virtual uint64_t Contents() const { return 0; }
};

struct Datasets {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;                  // may be null
  std::shared_ptr<const Dataset> validation = nullptr;  // may be null
  std::string remark = {};                              // a warning about the sets, or ""
};

// Returns 0 for null.
inline int64_t SizeOf(const std::shared_ptr<const Dataset>& set) {
  return set == nullptr ? 0 : set->size();
}

// Reads the sets that `data` names, or generates them from `seed` (run.seed), and splits off a
// validation set if data.validation_fraction requests it. Throws Error(kData) with the file, the
// expectation (sizes, label range) and what was found; Error(kUsage) if data.dir is missing.
Datasets OpenDatasets(const config::Data& data, uint64_t seed);
// For evaluation without training: opens the test set or, if there is none, the validation set. For
// a test set, the training files are not read and may be missing; `train` may be null.
Datasets OpenEvaluatedSet(const config::Data& data, uint64_t seed);
// The set to evaluate: the test set or, if it is absent or empty, the validation set.
const Dataset& EvaluatedSetOf(const Datasets& sets);

}  // namespace muster
