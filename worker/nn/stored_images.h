// The images and labels of a data set in device memory, as they are stored. The device makes
// batches of them; the host only passes the sample numbers.
//
// Owner and thread: the backend's. Only Upload allocates memory.
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
  // For batches of up to `most` of the `samples` samples. The backend must make an ImageOp.
  StoredImages(Backend& backend, const ImageRecipe& recipe, int64_t samples, int64_t most);

  int64_t samples() const { return samples_; }
  // The bytes that Upload allocates.
  size_t bytes() const { return scratch_ + op_->scratch_bytes(most_); }

  // One sample on the host.
  struct Sample {
    std::span<const uint8_t> planes;  // [channel][row][column]; valid until the next one
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
