// The gradients of a step on the device: level 0 is what will be pushed, the gradient buffer; on
// each further level lies a subtree's sum, or slice, that will be added to the level before.
//
// Owner and thread: the trainer's. Everything but the constructor, MakeLevels, UseSlot and Forget
// is queued.
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
  // `wire`: the format in which gradients travel; see Round and Add.
  DeviceGradients(Backend& backend, size_t floats, ElementType wire)
      : backend_(backend), floats_(floats), wire_(wire) {}

  // Makes levels up to this one, all zeros, where they are not there yet.
  void MakeLevels(size_t last) {
    while (further_.size() < last) {
      further_.push_back(NameFailure("sums of gradients over slices",
                                     [&] { return backend_.Allocate(floats_ * sizeof(float)); }));
      backend_.Zero(further_.back()->data(), floats_ * sizeof(float));
    }
  }

  // Where the gradient that is pushed lies at the host: level 0, from now on.
  void UseSlot(std::span<float> host) {
    auto found = gradient_buffers_.find(host.data());
    if (found == gradient_buffers_.end())
      found = gradient_buffers_.try_emplace(host.data(), backend_, host).first;
    slot_ = &found->second;
  }
  // Nothing that is queued uses the slot any more: what the device has of it goes.
  void Forget(std::span<float> host) {
    const auto found = gradient_buffers_.find(host.data());
    if (found == gradient_buffers_.end()) return;
    if (slot_ == &found->second) slot_ = nullptr;  // whoever computes next says where
    gradient_buffers_.erase(found);
  }
  std::span<float> Level(size_t level) {
    if (level == 0) return slot_->floats();
    return {static_cast<float*>(further_[level - 1]->data()), floats_};
  }

  // Floats [begin, end) of a level as they would arrive at the server.
  void Round(size_t level, size_t begin, size_t end) {
    backend_.RoundSlice(wire_, Level(level).data() + begin, end - begin);
  }
  // Adds those of the next level, rounded likewise.
  void AddNextTo(size_t level, size_t begin, size_t end) {
    float* const sum = Level(level).data() + begin;
    backend_.AddSlices(wire_, sum, Level(level + 1).data() + begin, sum, end - begin);
  }
  // Copies level 0. It is on the host when the work queued on kCopyOut is done.
  void CopyOut(size_t begin, size_t end) { slot_->CopyOut(begin, end); }

 private:
  Backend& backend_;
  const size_t floats_;
  const ElementType wire_;
  std::map<const float*, DeviceView> gradient_buffers_;  // by their place at the host
  DeviceView* slot_ = nullptr;
  std::vector<std::unique_ptr<DeviceBuffer>> further_;
};

}  // namespace muster
