// Which data sets lie on the worker's device, which then makes their batches itself; see
// worker/nn/stored_images.h. Who makes them is seen in the time alone: the batches are the same.
//
// Owner and thread: the trainer's.
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

// Samples of the largest batch of each set; 0: none will be asked for.
struct LargestBatches {
  int64_t train = 0, test = 0, validation = 0;
};
// The sizes of the sets that are evaluated.
struct EvaluatedSizes {
  int64_t test = 0, validation = 0;
};
// For a run of this plan from `first_step` on, with evaluations in blocks of `block` samples.
LargestBatches LargestBatchesOf(const StepPlan& plan, int64_t first_step,
                                const EvaluatedSizes& sizes, int64_t block);

class DeviceImages {
 public:
  // Chooses: the training set first, then the others, each where it takes no more than half of
  // what is `left` of the device's memory. The other half is for what comes later: the work of a
  // lost worker, and what libraries want. `data` may hold no sets; it must outlive this.
  DeviceImages(const config::Config& config, const Datasets& data, Backend& backend,
               const LargestBatches& largest, size_t left);

  // That Upload will allocate.
  size_t bytes() const;
  // All sets, and a line that says where they are. A set whose memory cannot be had after all
  // stays at the host, with a warning.
  void Upload();

  // Null: at the host.
  StoredImages* train() const { return train_.get(); }
  StoredImages* of(wire::EvaluationSet set) const {
    return set == wire::VALIDATION ? validation_.get() : test_.get();
  }
  ImagesBy train_by() const { return By(train()); }
  ImagesBy by(wire::EvaluationSet set) const { return By(of(set)); }

 private:
  static ImagesBy By(const StoredImages* images) {
    return images == nullptr ? ImagesBy::kHost : ImagesBy::kDevice;
  }
  std::unique_ptr<StoredImages> Choose(const config::Config& config, const char* name,
                                       const Dataset* set, bool augment, int64_t largest);
  void UploadSet(const char* name, const Dataset* set, std::unique_ptr<StoredImages>& images);

  Backend& backend_;
  const Datasets& data_;
  size_t left_;
  std::unique_ptr<StoredImages> train_, validation_, test_;
};

}  // namespace muster
