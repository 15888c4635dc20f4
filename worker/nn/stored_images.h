// The images and labels of a data set in the device's memory, as they are stored, and the batches
// that the device makes of them: the host says which samples.
//
// Owner and thread: the backend's. Nothing is allocated but by Upload.
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
  // For batches of up to `most` of the `samples` samples. Of a backend that makes an ImageOp.
  StoredImages(Backend& backend, const ImageRecipe& recipe, int64_t samples, int64_t most);

  int64_t samples() const { return samples_; }
  // That Upload allocates.
  size_t bytes() const { return scratch_ + op_->scratch_bytes(most_); }

  // What the host has of one sample.
  struct Sample {
    std::span<const uint8_t> planes;  // [channel][row][column]; valid until the next one
    int32_t label = 0;
  };
  using Read = std::function<Sample(int64_t index)>;
  // Allocates the memory, and fills it. Throws Error where either cannot be done; then nothing is
  // allocated.
  void Upload(const Read& read);
  bool uploaded() const { return memory_ != nullptr; }

  // On Queue::kInput. All addresses are the device's.
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
