// Batches on their way to the device, and what a pass says of them on its way back. Where the
// device computes in the host's memory, the host's addresses as they are. Otherwise two sets of
// device memory, so that one batch can be copied, or made of images that are there, while the
// device still computes on the one before.
//
// Owner and thread: the tower, its compute thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "worker/backend/backend.h"
#include "worker/nn/stored_images.h"
#include "worker/nn/tower_input.h"

namespace muster {

// TowerInput as the device sees it.
struct DeviceInput {
  int64_t count = 0;
  const void* images = nullptr;  // of the backend's activation_type
  const int32_t* labels = nullptr;
  const int64_t* sample_ids = nullptr;
  int64_t epoch = 0;
  LossSums* sums = nullptr;
  int32_t* predictions = nullptr;  // may be null
  float* logits = nullptr;         // may be null; the host's, see TowerInput
  // Set by the tower; as in LossArgs.
  const float* class_weights = nullptr;
  float share = 1;
};

class InputStage {
 public:
  // `image`: numbers of one sample.
  InputStage(Backend& backend, int64_t image);

  // For batches of up to `count` samples. Bytes that this takes, or would take.
  void Allocate(int64_t count);
  size_t BytesFor(int64_t count) const;
  // Nothing may be queued that uses it.
  void Free() {
    sets_ = {};
    staged_ = {};
  }

  // From now on batches are made of these (null: at the host), of their numbers alone. Not on a
  // device that computes in the host's memory.
  void Use(StoredImages* images);

  // The batch that is brought next is made ahead, if it can be, whatever kCompute is doing. Until
  // kCopyIn is done with what it has by then, its sample_ids must stay.
  void Stage(const TowerInput& input);
  // The batch is on the device for what is queued on kCompute from now on; the host's memory may
  // change again when what is queued on kCopyIn is done, unless the device computes in it.
  DeviceInput Bring(const TowerInput& input, LossSums& sums);
  // After forward has been queued: *sums and predictions of the batch that was brought last are at
  // the host when what is queued on kCopyOut is done.
  void BringBack(const TowerInput& input, LossSums& sums);
  // Nothing reads the batch that was brought last after what is queued on kCompute by now.
  void Release();

 private:
  struct Set {
    std::unique_ptr<DeviceBuffer> memory;
    std::unique_ptr<Event> there, released, returned;
  };
  // Where each part of a set lies, in bytes.
  struct Places {
    size_t images, labels, sample_ids, sums, predictions, activations, all;
  };
  Places PlacesFor(int64_t count) const;
  void AwaitUses(Set& set);
  void CopyIn(Set& set, const TowerInput& input);
  void MakeIn(Set& set, const TowerInput& input);
  bool converts() const { return backend_.activation_type() != ElementType::kFloat32; }
  bool needed() const { return !backend_.shares_host_memory(); }

  Backend& backend_;
  const int64_t image_;
  std::array<Set, 2> sets_;
  size_t current_ = 0;
  StoredImages* images_ = nullptr;
  BatchKey staged_;  // what is in the other set
};

}  // namespace muster
