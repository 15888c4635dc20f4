#include "bench/memory_limit.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>
#include <utility>

namespace muster::bench {
namespace {

// Processes floats [begin, end) of all streams, with just enough arithmetic that the compiler
// cannot drop a stream. If kGradients is 0, the number of gradients is `gradients`.
template <int kGradients, int kStates, bool kStream>
void Pass(float* const* streams, size_t gradients, size_t begin, size_t end) {
  const size_t read = (kGradients > 0 ? kGradients : gradients) + 1;
  float* const next = streams[read + kStates];
  for (size_t i = begin; i < end; i += 8) {
    __m256 sum = _mm256_load_ps(streams[0] + i);
    for (size_t s = 1; s < read; ++s) sum = _mm256_add_ps(sum, _mm256_load_ps(streams[s] + i));
    for (size_t s = read; s < read + kStates; ++s) {
      const __m256 state = _mm256_add_ps(sum, _mm256_load_ps(streams[s] + i));
      _mm256_store_ps(streams[s] + i, _mm256_mul_ps(state, _mm256_set1_ps(0.01f)));
    }
    if (kStream) {
      _mm256_stream_ps(next + i, sum);
    } else {
      _mm256_store_ps(next + i, sum);
    }
  }
  _mm_sfence();
}

using PassFunction = void (*)(float* const*, size_t, size_t, size_t);
constexpr int kUnrolled = 8;        // maximum number of gradients
constexpr size_t kPiece = 1 << 18;  // floats that a thread takes at once

template <bool kStream, int kStates, int... kGradients>
constexpr std::array<PassFunction, kUnrolled + 1> PassesOf(
    std::integer_sequence<int, kGradients...>) {
  return {Pass<kGradients, kStates, kStream>...};
}

template <bool kStream>
PassFunction PassFor(const PassShape& shape) {
  constexpr std::make_integer_sequence<int, kUnrolled + 1> kAll;
  static constexpr std::array<PassFunction, kUnrolled + 1> kPasses[] = {
      PassesOf<kStream, 0>(kAll), PassesOf<kStream, 1>(kAll), PassesOf<kStream, 2>(kAll)};
  const int gradients = shape.gradients > kUnrolled ? 0 : shape.gradients;
  return kPasses[shape.states][static_cast<size_t>(gradients)];
}

}  // namespace

double UpdateBytes(const PassShape& shape) {
  return static_cast<double>(shape.floats) * sizeof(float) *
         (shape.gradients + 2 + 2 * shape.states);
}

MemoryLimit::MemoryLimit(Team& team, const PassShape& shape) : team_(team), shape_(shape) {
  for (int i = 0; i < shape.gradients + shape.states + 2; ++i) {
    // Streams at equal offsets would share cache sets.
    const size_t skew = (static_cast<size_t>(i) * 832) % 4096 / sizeof(float);
    const size_t bytes = ((shape.floats + 8 + skew) * sizeof(float) + 4095) / 4096 * 4096;
    auto* const memory = static_cast<float*>(std::aligned_alloc(4096, bytes));
    if (memory == nullptr) throw std::bad_alloc();
    std::fill_n(memory, bytes / sizeof(float), 0.5f);
    owners_.emplace_back(memory, &std::free);
    streams_.push_back(memory + skew);
  }
  double seconds[2] = {1e9, 1e9};
  for (int i = 0; i < 3; ++i) {
    for (const bool stream : {false, true}) {
      seconds[stream] = std::min(seconds[stream], Seconds(1, stream));
    }
  }
  stream_ = seconds[true] < seconds[false];
}

double MemoryLimit::Seconds(int repeats, bool stream) {
  const PassFunction pass = stream ? PassFor<true>(shape_) : PassFor<false>(shape_);
  const size_t pieces =
      std::max<size_t>((shape_.floats + kPiece - 1) / kPiece, static_cast<size_t>(team_.threads()));
  return team_.TimeEach(pieces, repeats, [&](int, size_t piece) {
    const size_t lines = shape_.floats / 8;
    pass(streams_.data(), static_cast<size_t>(shape_.gradients), lines * piece / pieces * 8,
         lines * (piece + 1) / pieces * 8);
  });
}

double MemoryLimit::Seconds(int repeats) { return Seconds(repeats, stream_); }

double MemoryLimitSeconds(const PassShape& shape, int threads, int passes) {
  Team team(threads);
  MemoryLimit limit(team, shape);
  std::vector<double> seconds;
  seconds.reserve(static_cast<size_t>(passes));
  for (int i = 0; i < passes; ++i) seconds.push_back(limit.Seconds());
  return Median(seconds);
}

}  // namespace muster::bench
