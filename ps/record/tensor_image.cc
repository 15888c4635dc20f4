#include "ps/record/tensor_image.h"

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>

#include "common/base/error.h"

namespace muster {
namespace {

constexpr size_t kJobFloats = 512 << 10;  // 2 MiB per job

// Copies without the cache, because the disk reads the copy next, and cache lines that are fully
// overwritten need not be fetched. memcpy does this only for much larger sizes.
void StreamCopy(const float* from, float* to, size_t count) {
#ifdef __SSE2__
  for (; count > 0 && reinterpret_cast<uintptr_t>(to) % sizeof(__m128) != 0; --count) {
    *to++ = *from++;
  }
  for (; count >= 4; count -= 4, from += 4, to += 4) _mm_stream_ps(to, _mm_loadu_ps(from));
  _mm_sfence();  // before another thread reads the data
#endif
  std::memcpy(to, from, count * sizeof(float));
}

}  // namespace

std::vector<StoredTensor> CheckpointTensors(const VariableLayout& layout,
                                            const std::vector<std::string>& arenas) {
  std::vector<StoredTensor> tensors;
  for (const std::string& arena : arenas) {
    for (const Variable& variable : layout.variables()) {
      tensors.push_back(
          {.name = arena + "." + variable.name, .type = TensorType::kF32, .shape = variable.shape});
    }
  }
  return tensors;
}

TensorImage::TensorImage(const VariableLayout& layout, size_t arenas) {
  size_t to = 0, in_job = kJobFloats;
  for (size_t arena = 0; arena < arenas; ++arena) {
    for (const Variable& variable : layout.variables()) {
      for (size_t done = 0; done < variable.count;) {
        if (in_job >= kJobFloats) {
          jobs_.emplace_back();
          in_job = 0;
        }
        const size_t count = std::min(variable.count - done, kJobFloats - in_job);
        jobs_.back().push_back({arena, variable.offset + done, to, count});
        done += count;
        to += count;
        in_job += count;
      }
    }
  }
  bytes_ = to * sizeof(float);
  padded_ = (bytes_ + kBlock - 1) / kBlock * kBlock;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kBlock, std::max(padded_, kBlock))));
  if (!data_) throw std::bad_alloc();
  std::memset(data_.get(), 0, padded_);
}

std::vector<std::function<void()>> TensorImage::CopyJobs(
    const std::vector<std::span<const float>>& arenas) {
  std::vector<std::function<void()>> jobs;
  jobs.reserve(jobs_.size());
  for (const std::vector<Piece>& pieces : jobs_) {
    jobs.emplace_back([this, &pieces, arenas] {
      for (const Piece& piece : pieces) {
        StreamCopy(arenas[piece.arena].data() + piece.from,
                   reinterpret_cast<float*>(data_.get()) + piece.to, piece.count);
      }
    });
  }
  return jobs;
}

std::span<const std::byte> TensorImage::Tensor(const StoredTensor& tensor) const {
  MUSTER_CHECK(tensor.end <= bytes_);
  return {data_.get() + tensor.begin, tensor.bytes()};
}

}  // namespace muster
