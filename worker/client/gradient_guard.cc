#include "worker/client/gradient_guard.h"

#include <algorithm>
#include <bit>

#include "common/base/error.h"
#include "common/base/text.h"

namespace muster {

GradientGuard::GradientGuard(const VariableLayout& layout) {
  for (const Variable& variable : layout.variables()) {
    parts_.push_back({variable.name, variable.offset, variable.offset + variable.count});
  }
}

void GradientGuard::Fill(std::span<float> arena, size_t begin, size_t end) const {
  for (const Part& part : parts_) {
    const size_t from = std::max(begin, part.begin), to = std::min(end, part.end);
    if (from < to) {
      std::ranges::fill(arena.subspan(from, to - from), std::bit_cast<float>(kUnwritten));
    }
  }
}

void GradientGuard::Check(std::span<const float> arena, size_t begin, size_t end,
                          const std::string& of) const {
  const auto unwritten = [](float value) { return std::bit_cast<uint32_t>(value) == kUnwritten; };
  for (const Part& part : parts_) {
    const size_t from = std::max(begin, part.begin), to = std::min(end, part.end);
    if (from >= to) continue;
    const std::span<const float> floats = arena.subspan(from, to - from);
    const auto first = std::ranges::find_if(floats, unwritten);
    if (first == floats.end()) continue;
    throw Error(ExitCode::kFailure,
                "gradient of {} was not written: index {} of {}, {} of the {} floats checked ({}); "
                "each step must write the whole gradient",
                part.name,
                FormatCount(static_cast<int64_t>(from - part.begin) + (first - floats.begin())),
                FormatCount(static_cast<int64_t>(part.end - part.begin)),
                FormatCount(std::ranges::count_if(floats, unwritten)),
                FormatCount(static_cast<int64_t>(floats.size())), of);
  }
}

void GuardedGradients::Begin(const Order& order) {
  if (order.kind == Order::Kind::kReset) marked_.clear();
  if (order.kind != Order::Kind::kTrain) return;
  if (!order.taken_over) buffers_.clear();
  for (const OrderPart& part : order.parts) {
    if (order.taken_over) {
      const std::span<float> buffer = buffer_of_(part.buffer);
      guard_.Fill(buffer, 0, buffer.size());
    } else {
      buffers_.push_back(part.buffer);
    }
  }
}

void GuardedGradients::Mark(int64_t version, size_t chunk) {
  for (const size_t buffer : buffers_) {
    std::vector<int64_t>& versions = marked_[buffer];
    versions.resize(chunks_.size(), -1);
    if (versions[chunk] >= version) continue;
    versions[chunk] = version;
    guard_.Fill(buffer_of_(buffer), chunks_[chunk].begin, chunks_[chunk].end);
  }
}

void GuardedGradients::Check(size_t buffer, size_t chunk, const std::string& of) const {
  guard_.Check(buffer_of_(buffer), chunks_[chunk].begin, chunks_[chunk].end, of);
}

}  // namespace muster
