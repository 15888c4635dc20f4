#include "bench/gpu/bench_device.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "common/base/element_type.h"
#include "common/base/error.h"
#include "worker/backend/cuda/await.h"
#include "worker/backend/cuda/code.h"

namespace muster::cuda {
namespace {

constexpr double kPatience = 60;  // seconds

EventHandle MakeTimer() {
  cudaEvent_t event{};
  Check(cudaEventCreateWithFlags(&event, cudaEventDefault), "create an event");
  return EventHandle(event);
}

}  // namespace

BenchDevice::BenchDevice() {
  Check(cudaSetDevice(0), "be used");
  cudaDeviceProp properties{};
  Check(cudaGetDeviceProperties(&properties, 0), "report its properties");
  if (!HasCode()) {
    throw Error(
        ExitCode::kFailure,
        "this build has code for {}, not for {} (sm_{}{}); set MUSTER_CUDA_ARCHITECTURES and "
        "rebuild (docs/GPUS.md)",
        Architectures(), properties.name, properties.major, properties.minor);
  }
  most_blocks_ = MostBlocks(properties);
  stream_ = MakeStream();
  piece_ = AllocateLocked(kPieceBytes);
}

void BenchDevice::Wait() const { Check(cudaStreamSynchronize(stream()), "finish its work"); }

void* BenchDevice::AllocateBytes(int64_t bytes) {
  void* memory = nullptr;
  Check(cudaMalloc(&memory, static_cast<size_t>(bytes)), "allocate memory");
  memory_.emplace_back(memory);
  return memory;
}

void BenchDevice::CopyIn(void* to, const void* from, size_t bytes) const {
  for (size_t at = 0; at < bytes; at += kPieceBytes) {
    const size_t size = std::min(kPieceBytes, bytes - at);
    std::memcpy(piece_.get(), static_cast<const std::byte*>(from) + at, size);
    Check(cudaMemcpyAsync(static_cast<std::byte*>(to) + at, piece_.get(), size,
                          cudaMemcpyHostToDevice, stream()),
          "copy from the host");
    Wait();
  }
}

void BenchDevice::CopyOut(void* to, const void* from, size_t bytes) const {
  for (size_t at = 0; at < bytes; at += kPieceBytes) {
    const size_t size = std::min(kPieceBytes, bytes - at);
    Check(cudaMemcpyAsync(piece_.get(), static_cast<const std::byte*>(from) + at, size,
                          cudaMemcpyDeviceToHost, stream()),
          "copy to the host");
    Wait();
    std::memcpy(static_cast<std::byte*>(to) + at, piece_.get(), size);
  }
}

template <>
float* BenchDevice::Make(int64_t count, const std::function<float(int64_t)>& value) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = value(static_cast<int64_t>(i));
  return Upload(values);
}

template <typename Half>
Half* BenchDevice::MakeHalves(ElementType type, int64_t count,
                              const std::function<float(int64_t)>& value) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = value(static_cast<int64_t>(i));
  std::vector<uint16_t> halves(values.size());
  (void)ToHalves(type, values, halves.data());
  return reinterpret_cast<Half*>(Upload(halves));
}

template <>
Bf16* BenchDevice::Make(int64_t count, const std::function<float(int64_t)>& value) {
  return MakeHalves<Bf16>(ElementType::kBFloat16, count, value);
}

template <>
Fp16* BenchDevice::Make(int64_t count, const std::function<float(int64_t)>& value) {
  return MakeHalves<Fp16>(ElementType::kFloat16, count, value);
}

std::vector<float> BenchDevice::Numbers(const float* from, int64_t count) const {
  return Download(from, count);
}

std::vector<float> BenchDevice::Numbers(ElementType type, const void* from, int64_t count) const {
  const auto halves = Download(static_cast<const uint16_t*>(from), count);
  std::vector<float> values(halves.size());
  FromHalves(type, halves, values.data());
  return values;
}

void BenchDevice::Poison(void* at, size_t bytes) const {
  Check(cudaMemsetAsync(at, 0xff, bytes, stream()), "set memory");
}

void BenchDevice::Copy(void* to, const void* from, size_t bytes) const {
  Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream()), "copy");
}

double BenchDevice::MedianSeconds(const std::function<void()>& run, int repeats) const {
  const EventHandle begin = MakeTimer(), end = MakeTimer();
  // One launch takes the host as long as a short kernel takes the GPU, so short ones run several
  // times in a row.
  constexpr float kLongMs = 1;
  constexpr int kRuns = 10;
  int runs = 1;
  std::vector<double> seconds;
  for (int i = 0; i <= repeats; ++i) {
    Check(cudaEventRecord(begin.get(), stream()), "record an event");
    for (int done = 0; done < runs; ++done) run();
    Check(cudaEventRecord(end.get(), stream()), "record an event");
    if (!AwaitEvent(end.get(), kPatience)) {
      throw Error(ExitCode::kFailure, "the GPU did not finish a run within {:.0f} s", kPatience);
    }
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "time its work");
    if (i > 0) seconds.push_back(1e-3 * milliseconds / runs);
    if (i == 0 && milliseconds < kLongMs) runs = kRuns;
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace muster::cuda
