#include "bench/memory_limit.h"

#include <immintrin.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>
#include <vector>

namespace muster::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Arrays that begin at different places of a page: streams at equal offsets share cache sets.
class Streams {
 public:
  Streams(size_t count, size_t floats) {
    for (size_t i = 0; i < count; ++i) {
      const size_t skew = (i * 832) % 4096 / sizeof(float);
      const size_t bytes = ((floats + skew) * sizeof(float) + 4095) / 4096 * 4096;
      auto* const memory = static_cast<float*>(std::aligned_alloc(4096, bytes));
      if (memory == nullptr) throw std::bad_alloc();
      std::fill_n(memory, bytes / sizeof(float), 0.5f);
      owners_.emplace_back(memory, &std::free);
      begins_.push_back(memory + skew);
    }
  }
  float* operator[](size_t i) const { return begins_[i]; }

 private:
  std::vector<std::unique_ptr<float, void (*)(void*)>> owners_;
  std::vector<float*> begins_;
};

// The arithmetic is the least that keeps the compiler from leaving a stream out.
void Pass(const Streams& streams, const PassShape& shape, size_t begin, size_t end, bool stream) {
  const size_t first_state = static_cast<size_t>(shape.gradients) + 1;
  const size_t next = first_state + static_cast<size_t>(shape.states);
  for (size_t i = begin; i < end; i += 8) {
    __m256 sum = _mm256_load_ps(streams[0] + i);
    for (size_t s = 1; s < first_state; ++s) {
      sum = _mm256_add_ps(sum, _mm256_load_ps(streams[s] + i));
    }
    for (size_t s = first_state; s < next; ++s) {
      const __m256 state = _mm256_add_ps(sum, _mm256_load_ps(streams[s] + i));
      _mm256_store_ps(streams[s] + i, _mm256_mul_ps(state, _mm256_set1_ps(0.01f)));
    }
    if (stream) {
      _mm256_stream_ps(streams[next] + i, sum);
    } else {
      _mm256_store_ps(streams[next] + i, sum);
    }
  }
  _mm_sfence();
}

double MedianSeconds(const Streams& streams, const PassShape& shape, bool stream, int passes) {
  std::vector<double> seconds;
  std::barrier start(shape.threads + 1), stop(shape.threads + 1);
  std::vector<std::jthread> threads;
  for (int t = 0; t < shape.threads; ++t) {
    threads.emplace_back([&, t] {
      const size_t blocks = shape.floats / 8;
      const size_t begin = blocks * static_cast<size_t>(t) / static_cast<size_t>(shape.threads);
      const size_t end = blocks * static_cast<size_t>(t + 1) / static_cast<size_t>(shape.threads);
      for (int pass = 0; pass <= passes; ++pass) {
        start.arrive_and_wait();
        Pass(streams, shape, begin * 8, end * 8, stream);
        stop.arrive_and_wait();
      }
    });
  }
  for (int pass = 0; pass <= passes; ++pass) {
    start.arrive_and_wait();
    const auto began = Clock::now();
    stop.arrive_and_wait();
    if (pass > 0) seconds.push_back(std::chrono::duration<double>(Clock::now() - began).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace

double PassBytes(const PassShape& shape) {
  return static_cast<double>(shape.floats) * sizeof(float) *
         (shape.gradients + 2 + 2 * shape.states);
}

double MemoryLimitSeconds(const PassShape& shape, int passes) {
  const Streams streams(static_cast<size_t>(shape.gradients + shape.states + 2), shape.floats + 8);
  return std::min(MedianSeconds(streams, shape, true, passes),
                  MedianSeconds(streams, shape, false, passes));
}

}  // namespace muster::bench
