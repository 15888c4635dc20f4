// The gradients of a step on the device. Level 0 is the gradient buffer to push; each further level
// holds the sum of a subtree, or a slice, to be added to the previous level.
//
// Owned by the trainer and used on its thread. All calls queue their work except the constructor,
// MakeLevels, UseSlot and Forget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "common/base/element_type.h"
#include "worker/nn/device_view.h"
#include "worker/nn/name_failure.h"

namespace muster {

class DeviceGradients {
 public:
  // `wire` is the format in which gradients are sent (see Round and AddNextTo).
  DeviceGradients(Backend& backend, size_t floats, ElementType wire)
      : backend_(backend), floats_(floats), wire_(wire) {}

  // Allocates missing levels up to `last`, filled with zeros.
  void MakeLevels(size_t last) {
    while (further_.size() < last) {
      further_.push_back(NameFailure("sums of gradients over slices",
                                     [&] { return backend_.Allocate(floats_ * sizeof(float)); }));
      backend_.Zero(further_.back()->data(), floats_ * sizeof(float));
    }
  }

  // Sets level 0 to the device's view of this gradient buffer of the host.
  void UseSlot(std::span<float> host) {
    auto found = gradient_buffers_.find(host.data());
    if (found == gradient_buffers_.end())
      found = gradient_buffers_.try_emplace(host.data(), backend_, host).first;
    slot_ = &found->second;
  }
  // Frees the device's view of this buffer. No queued work may still use it.
  void Forget(std::span<float> host) {
    const auto found = gradient_buffers_.find(host.data());
    if (found == gradient_buffers_.end()) return;
    if (slot_ == &found->second) slot_ = nullptr;  // the next UseSlot sets it
    gradient_buffers_.erase(found);
  }
  // See Backend::Export, of level 0.
  std::string Export() { return slot_->Export(); }
  std::span<float> Level(size_t level) {
    if (level == 0) return slot_->floats();
    return {static_cast<float*>(further_[level - 1]->data()), floats_};
  }

  // Rounds floats [begin, end) of a level to what would arrive at the server.
  void Round(size_t level, size_t begin, size_t end) {
    backend_.RoundSlice(wire_, Level(level).data() + begin, end - begin);
  }
  // Adds the same floats of the next level and rounds the sums likewise.
  void AddNextTo(size_t level, size_t begin, size_t end) {
    float* const sum = Level(level).data() + begin;
    backend_.AddSlices(wire_, sum, Level(level + 1).data() + begin, sum, end - begin);
  }
  // Copies these floats of level 0 to the host. They have arrived when the work queued on kCopyOut
  // is done.
  void CopyOut(size_t begin, size_t end) { slot_->CopyOut(begin, end); }

 private:
  Backend& backend_;
  const size_t floats_;
  const ElementType wire_;
  std::map<const float*, DeviceView> gradient_buffers_;  // by host address
  DeviceView* slot_ = nullptr;
  std::vector<std::unique_ptr<DeviceBuffer>> further_;
};

}  // namespace muster
