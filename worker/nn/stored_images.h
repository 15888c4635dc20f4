// The stored images and labels of a data set, in device memory. The device makes batches from them;
// the host passes only the sample numbers.
//
// Used on the backend's thread. Only Upload allocates memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "worker/backend/backend.h"

namespace muster {

class StoredImages {
 public:
  // Holds `samples` samples and makes batches of up to `most` of them. The backend must support
  // MakeImageOp.
  StoredImages(Backend& backend, const ImageRecipe& recipe, int64_t samples, int64_t most);

  int64_t samples() const { return samples_; }
  // The bytes that Upload allocates.
  size_t bytes() const { return scratch_ + op_->scratch_bytes(most_); }

  // One sample on the host.
  struct Sample {
    std::span<const uint8_t> planes;  // [channel][row][column]; valid until the next sample
    int32_t label = 0;
  };
  using Read = std::function<Sample(int64_t index)>;
  // Allocates the memory and fills it. If it throws Error, no memory is left allocated.
  void Upload(const Read& read);
  bool uploaded() const { return memory_ != nullptr; }

  // Makes a batch on Queue::kInput. All addresses are on the device.
  void Make(const int64_t* sample_ids, int64_t count, int64_t epoch, void* batch,
            int32_t* batch_labels);

 private:
  void Fill(const Read& read);
  template <typename T>
  T* At(size_t offset) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(memory_->data()) + offset);
  }

  Backend& backend_;
  const int64_t samples_, most_;
  const size_t image_;             // bytes of one image
  const size_t labels_, scratch_;  // offsets in the memory; the images come first
  const std::unique_ptr<ImageOp> op_;
  std::unique_ptr<DeviceBuffer> memory_;
};

}  // namespace muster
