#include "worker/trainer/locked_batches.h"

#include <utility>

namespace muster {
namespace {

class LockedBatches final : public BatchPipeline {
 public:
  LockedBatches(std::unique_ptr<BatchPipeline> batches, std::unique_ptr<HostRegistration> lock)
      : batches_(std::move(batches)), lock_(std::move(lock)) {}

  const PreparedBatch& Next(double deadline_s) override { return batches_->Next(deadline_s); }
  const PreparedBatch* Peek() override { return batches_->Peek(); }
  std::span<const std::byte> memory() const override { return batches_->memory(); }

 private:
  const std::unique_ptr<BatchPipeline> batches_;
  const std::unique_ptr<HostRegistration> lock_;  // last: ends before the memory does
};

}  // namespace

std::unique_ptr<BatchPipeline> LockBatches(Backend& backend,
                                           std::unique_ptr<BatchPipeline> batches) {
  const std::span<const std::byte> memory = batches->memory();
  auto lock = backend.Register(
      {.what = "batches", .begin = memory.data(), .bytes = memory.size(), .read_only = false});
  if (lock == nullptr) return batches;
  return std::make_unique<LockedBatches>(std::move(batches), std::move(lock));
}

}  // namespace muster
