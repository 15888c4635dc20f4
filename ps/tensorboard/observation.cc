#include "ps/tensorboard/observation.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace muster {

void ValueHistogram::Add(std::span<const float> values) {
  double sum = 0, squares = 0;
  for (const float value : values) {
    ++buckets_[std::bit_cast<uint32_t>(value) >> kShift];
    sum += value;
    squares += static_cast<double>(value) * value;
    min_ = std::min(min_, value);
    max_ = std::max(max_, value);
  }
  sum_ += sum;
  squares_ += squares;
  count_ += values.size();
}

void ValueHistogram::Add(const ValueHistogram& other) {
  for (size_t i = 0; i < kBuckets; ++i) buckets_[i] += other.buckets_[i];
  sum_ += other.sum_;
  squares_ += other.squares_;
  count_ += other.count_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
}

tensorboard::Histogram ValueHistogram::ToProto() const {
  tensorboard::Histogram proto;
  if (count_ == 0) return proto;
  proto.set_min(min_);
  proto.set_max(max_);
  proto.set_num(static_cast<double>(count_));
  proto.set_sum(sum_);
  proto.set_sum_squares(squares_);
  // The bucket boundary nearer to zero, for either sign.
  const auto inner = [](size_t bucket) {
    return std::bit_cast<float>(static_cast<uint32_t>(bucket) << kShift);
  };
  const auto put = [&](double upper, uint64_t count) {
    const int last = proto.bucket_size() - 1;
    if (count == 0 && last < 0) return;
    if (count == 0 && proto.bucket(last) == 0) {  // merge empty buckets
      proto.set_bucket_limit(last, upper);
      return;
    }
    proto.add_bucket_limit(upper);
    proto.add_bucket(static_cast<double>(count));
  };
  constexpr size_t kHalf = kBuckets / 2;
  // The upper end of a negative bucket is the end nearer to zero; -0 counts as negative.
  for (size_t i = kBuckets; i-- > kHalf;) put(inner(i), buckets_[i]);
  for (size_t i = 0; i < kHalf; ++i) put(inner(i + 1), buckets_[i]);
  while (proto.bucket_size() > 0 && proto.bucket(proto.bucket_size() - 1) == 0) {
    proto.mutable_bucket()->RemoveLast();
    proto.mutable_bucket_limit()->RemoveLast();
  }
  // Replace infinities and NaNs, which readers reject and which end the run anyway.
  for (double& limit : *proto.mutable_bucket_limit()) {
    if (!std::isfinite(limit)) limit = std::copysign(std::numeric_limits<float>::max(), limit);
  }
  return proto;
}

}  // namespace muster
