// Transfers batches to the device and the results of a pass back. If the device computes in host
// memory, it uses the host's addresses, except of images that must be converted. Otherwise there
// are two sets of device memory, so that one batch can be copied, or made from stored images, while
// the device still computes on the other.
//
// Owned by the tower and used on its compute thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "worker/backend/backend.h"
#include "worker/nn/stored_images.h"
#include "worker/nn/tower_input.h"

namespace muster {

// TowerInput with device addresses.
struct DeviceInput {
  int64_t count = 0;
  const void* images = nullptr;  // of the backend's activation_type
  const int32_t* labels = nullptr;
  const int64_t* sample_ids = nullptr;
  int64_t epoch = 0;
  LossSums* sums = nullptr;
  int32_t* predictions = nullptr;  // may be null
  float* logits = nullptr;         // may be null; on the host, see TowerInput
  // Set by the tower; as in LossArgs.
  const float* class_weights = nullptr;
  float share = 1;
};

class InputStage {
 public:
  // `image` is the number of elements of one sample.
  InputStage(Backend& backend, int64_t image);

  // Allocate allocates the memory for batches of up to `count` samples. BytesFor returns its size.
  void Allocate(int64_t count);
  size_t BytesFor(int64_t count) const;
  // Frees the memory. Queued work must no longer use it.
  void Free() {
    sets_ = {};
    staged_ = {};
    converted_ = {};
  }

  // Makes the device prepare batches from these images, so that only sample numbers are copied. If
  // `images` is null, batches are prepared on the host. It must be null if the device computes in
  // host memory.
  void Use(StoredImages* images);

  // Copies or prepares the batch of the next Bring in advance, while kCompute is busy. The host's
  // memory may change again when the work queued on kCopyIn by then is done.
  void Stage(const TowerInput& input);
  // Brings the batch to the device for work that is queued on kCompute from now on. The host's
  // memory may change again when the work queued on kCopyIn is done, unless the device computes in
  // it.
  DeviceInput Bring(const TowerInput& input, LossSums& sums);
  // Called after the forward pass has been queued. Copies *sums and the predictions of the last
  // batch to the host: they have arrived when the work queued on kCopyOut is done.
  void BringBack(const TowerInput& input, LossSums& sums);
  // Called when all work that reads the current batch has been queued on kCompute.
  void Release();

 private:
  struct Set {
    std::unique_ptr<DeviceBuffer> memory;
    std::unique_ptr<Event> there, released, returned;
  };
  // The offset of each part of a set, in bytes. `arrived`: images as they come from the host, if
  // they are not activations.
  struct Places {
    size_t images, labels, sample_ids, sums, predictions, arrived, all;
  };
  Places PlacesFor(int64_t count) const;
  // The size of the images of a batch as activations, if these are not floats.
  size_t ConvertedBytes(int64_t count) const;
  void AwaitUses(Set& set);
  void Fill(Set& set, const TowerInput& input);
  void CopyIn(Set& set, const TowerInput& input);
  void Convert(Set& set, const TowerInput& input);
  void MakeIn(Set& set, const TowerInput& input);
  bool converts() const { return backend_.activation_type() != ElementType::kFloat32; }
  bool needed() const { return !backend_.shares_host_memory(); }

  Backend& backend_;
  const int64_t image_;
  std::array<Set, 2> sets_;
  std::unique_ptr<DeviceBuffer> converted_;  // if the device computes in host memory
  size_t current_ = 0;
  StoredImages* images_ = nullptr;
  BatchKey staged_;  // the contents of the other set
};

}  // namespace muster
