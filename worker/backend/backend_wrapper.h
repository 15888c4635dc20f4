// Forwards every call to another backend. The base class of backends that measure or monitor
// another one.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "worker/backend/backend.h"

namespace muster {

class BackendWrapper : public Backend {
 public:
  explicit BackendWrapper(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}

  void Enter() override { backend_->Enter(); }
  ElementType activation_type() const override { return backend_->activation_type(); }
  ElementType logits_type() const override { return backend_->logits_type(); }

  bool shares_host_memory() const override { return backend_->shares_host_memory(); }
  std::unique_ptr<DeviceBuffer> Allocate(size_t bytes) override {
    return backend_->Allocate(bytes);
  }
  DeviceMemoryUse memory_use() const override { return backend_->memory_use(); }
  std::string pci_bus_id() const override { return backend_->pci_bus_id(); }
  std::string Export(DeviceBuffer& buffer) override { return backend_->Export(buffer); }
  std::unique_ptr<HostRegistration> Register(const HostMemory& memory) override {
    return backend_->Register(memory);
  }
  void CopyIn(void* device, const void* host, size_t bytes) override {
    backend_->CopyIn(device, host, bytes);
  }
  void CopyOut(void* host, const void* device, size_t bytes) override {
    backend_->CopyOut(host, device, bytes);
  }

  std::unique_ptr<Event> MakeEvent() override { return backend_->MakeEvent(); }
  void Record(Queue queue, Event& event) override { backend_->Record(queue, event); }
  void Await(Queue queue, Event& event) override { backend_->Await(queue, event); }
  void Drain() override { backend_->Drain(); }

  std::unique_ptr<RepeatedWork> MakeRepeatedWork() override { return backend_->MakeRepeatedWork(); }

  std::unique_ptr<WeightLayouts> MakeWeightLayouts() override {
    return backend_->MakeWeightLayouts();
  }
  std::unique_ptr<Op> MakeOp(const Layer& layer, const OpOptions& options) override {
    return backend_->MakeOp(layer, options);
  }
  std::unique_ptr<LossOp> MakeLoss(const Layer& layer, const OpOptions& options) override {
    return backend_->MakeLoss(layer, options);
  }
  std::string Convolutions() const override { return backend_->Convolutions(); }
  std::unique_ptr<ImageOp> MakeImageOp(const ImageRecipe& recipe) override {
    return backend_->MakeImageOp(recipe);
  }

  void Zero(void* to, size_t bytes) override { backend_->Zero(to, bytes); }
  void ToActivations(void* to, const float* from, int64_t count) override {
    backend_->ToActivations(to, from, count);
  }
  void ScalePixels(void* to, const uint8_t* from, int64_t count, const PixelScale& scale) override {
    backend_->ScalePixels(to, from, count, scale);
  }
  void MirrorImages(void* to, const void* from, int64_t count, const Shape& shape) override {
    backend_->MirrorImages(to, from, count, shape);
  }
  void AverageLogits(ElementType type, void* logits, const void* others, int64_t count) override {
    backend_->AverageLogits(type, logits, others, count);
  }
  void AddGradients(void* to, const void* a, const void* b, const void* relu_output,
                    int64_t count) override {
    backend_->AddGradients(to, a, b, relu_output, count);
  }
  void RoundSlice(ElementType wire, float* values, size_t count) override {
    backend_->RoundSlice(wire, values, count);
  }
  void AddSlices(ElementType wire, const float* a, const float* b, float* to,
                 size_t count) override {
    backend_->AddSlices(wire, a, b, to, count);
  }

 private:
  const std::unique_ptr<Backend> backend_;
};

}  // namespace muster
