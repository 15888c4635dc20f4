// Decides who makes the images of batches: which data sets are stored in the worker's device
// memory, where the device prepares their batches (see worker/nn/stored_images.h), and which come
// from the host as bytes. The choice affects only speed: the batches are the same.
//
// Owned by the trainer and used on its thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/plan/step_plan.h"
#include "proto/config_fwd.h"
#include "proto/wire.pb.h"
#include "worker/backend/backend.h"
#include "worker/data/dataset.h"
#include "worker/data/pipeline.h"
#include "worker/nn/stored_images.h"

namespace muster {

// The largest batch of each set, in samples; 0 if the set is not used.
struct LargestBatches {
  int64_t train = 0, test = 0, validation = 0;
};
// The sizes of the evaluated sets, in samples.
struct EvaluatedSizes {
  int64_t test = 0, validation = 0;
};
// Returns the largest batches of a run of this plan that begins with `first_step` and evaluates in
// blocks of `block` samples.
LargestBatches LargestBatchesOf(const StepPlan& plan, int64_t first_step,
                                const EvaluatedSizes& sizes, int64_t block);

// Returns how the images of a set in host memory are made. The set may be null.
ImagesBy FromHost(const Backend& backend, const Dataset* set, const config::Data& data,
                  bool training);

class DeviceImages {
 public:
  // Chooses the sets, beginning with the training set. A set is chosen if it takes at most half of
  // the device memory that is left, at first `left` bytes. The rest remains available for libraries
  // and for the work of a lost worker. Sets in `data` may be null; `data` must outlive this.
  DeviceImages(const config::Config& config, const Datasets& data, Backend& backend,
               const LargestBatches& largest, size_t left);

  // Returns the number of bytes that Upload will allocate.
  size_t bytes() const;
  // Uploads the chosen sets and logs where each is. A set for which allocation fails stays in host
  // memory, with a warning.
  void Upload();

  // Null if the set is in host memory.
  StoredImages* train() const { return train_.get(); }
  StoredImages* of(wire::EvaluationSet set) const {
    return set == wire::VALIDATION ? validation_.get() : test_.get();
  }
  ImagesBy train_by() const { return train_ != nullptr ? ImagesBy::kDevice : train_from_; }
  ImagesBy by(wire::EvaluationSet set) const {
    return of(set) != nullptr ? ImagesBy::kDevice : evaluated_from_;
  }

 private:
  std::unique_ptr<StoredImages> Choose(const config::Config& config, const char* name,
                                       const Dataset* set, bool augment, int64_t largest);
  void UploadSet(const char* name, const Dataset* set, std::unique_ptr<StoredImages>& images);

  Backend& backend_;
  const Datasets& data_;
  size_t left_;
  std::unique_ptr<StoredImages> train_, validation_, test_;
  ImagesBy train_from_, evaluated_from_;  // of sets in host memory
};

}  // namespace muster
