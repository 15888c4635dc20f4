#include "worker/trainer/slice_guard.h"

#include <fmt/core.h>

#include <utility>

namespace muster {

SliceGuard::SliceGuard(Backend& backend, std::shared_ptr<const GradientGuard> guard, size_t floats)
    : backend_(backend), guard_(std::move(guard)) {
  if (guard_ == nullptr || backend.shares_host_memory()) return;
  marked_.resize(floats);
  guard_->Fill(marked_, 0, floats);
  copy_.resize(floats);
}

void SliceGuard::Fill(std::span<float> level) {
  if (guard_ == nullptr) return;
  if (marked_.empty()) return guard_->Fill(level, 0, level.size());
  backend_.Drain();  // queued work may read it
  backend_.CopyIn(level.data(), marked_.data(), level.size_bytes());
  backend_.Drain();
}

void SliceGuard::Check(std::span<const float> level, size_t begin, size_t end, int64_t slice,
                       int64_t step) {
  if (guard_ == nullptr) return;
  const std::string of = fmt::format("slice {} of step {}", slice, step);
  if (marked_.empty()) return guard_->Check(level, begin, end, of);
  backend_.Drain();
  backend_.CopyOut(copy_.data() + begin, level.data() + begin, (end - begin) * sizeof(float));
  backend_.Drain();
  guard_->Check(copy_, begin, end, of);
}

}  // namespace muster
