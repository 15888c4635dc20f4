// A GPU stream and memory for benchmarks, inputs with known values at each index, and timing with
// events.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "worker/backend/cuda/element.h"
#include "worker/backend/cuda/handles.h"
#include "worker/backend/cuda/target.h"

namespace muster::cuda {

// Returns element i of input `salt`, a number between -2 and 2 that is exact in bfloat16.
inline float InputAt(int64_t i, uint32_t salt) {
  const uint64_t mixed =
      (static_cast<uint64_t>(i) + salt * uint64_t{0x51ed270b}) * uint64_t{0x9e3779b97f4a7c15};
  return 0.25f * (static_cast<float>((mixed >> 40) % 17) - 8);
}
// The same with more digits than bfloat16 can represent.
inline float LongInputAt(int64_t i, uint32_t salt) { return InputAt(i, salt) * 1.0009765625f; }

// Throws Error if there is no driver or GPU, or if the build has no code for this GPU.
class BenchDevice {
 public:
  BenchDevice();
  BenchDevice(const BenchDevice&) = delete;

  cudaStream_t stream() const { return stream_.get(); }
  Target target() const { return {stream(), most_blocks_}; }
  void Wait() const;

  // This object owns the memory that these functions allocate.
  template <typename T>
  T* Allocate(int64_t count) {
    return static_cast<T*>(AllocateBytes(count * static_cast<int64_t>(sizeof(T))));
  }
  template <typename T>
  T* Upload(const std::vector<T>& values) {
    T* const to = Allocate<T>(static_cast<int64_t>(values.size()));
    CopyIn(to, values.data(), values.size() * sizeof(T));
    return to;
  }
  // Uploads value(i) for each i. T is float, Bf16 or Fp16.
  template <typename T>
  T* Make(int64_t count, const std::function<float(int64_t)>& value);
  template <typename T>
  std::vector<T> Download(const T* from, int64_t count) const {
    std::vector<T> values(static_cast<size_t>(count));
    CopyOut(values.data(), from, values.size() * sizeof(T));
    return values;
  }
  std::vector<float> Numbers(const float* from, int64_t count) const;
  std::vector<float> Numbers(const Bf16* from, int64_t count) const {
    return Numbers(ElementType::kBFloat16, from, count);
  }
  std::vector<float> Numbers(const Fp16* from, int64_t count) const {
    return Numbers(ElementType::kFloat16, from, count);
  }
  // Fills memory with NaNs, to detect values that a kernel does not write.
  void Poison(void* at, size_t bytes) const;
  void Copy(void* to, const void* from, size_t bytes) const;  // on the GPU
  void FreeAll() { memory_.clear(); }

  // Returns the median duration in seconds, measured with events after one warm-up run.
  double MedianSeconds(const std::function<void()>& run, int repeats) const;

 private:
  template <typename Half>
  Half* MakeHalves(ElementType type, int64_t count, const std::function<float(int64_t)>& value);
  std::vector<float> Numbers(ElementType type, const void* from, int64_t count) const;
  void* AllocateBytes(int64_t bytes);
  void CopyIn(void* to, const void* from, size_t bytes) const;
  void CopyOut(void* to, const void* from, size_t bytes) const;

  static constexpr size_t kPieceBytes = size_t{8} << 20;

  int most_blocks_ = 1;
  StreamHandle stream_;
  LockedMemory piece_;
  std::vector<DeviceMemory> memory_;
};

}  // namespace muster::cuda
