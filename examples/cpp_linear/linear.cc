// examples/c_linear in C++: the same model and points.
//
//     muster launch examples/c_linear/linear.txtpb --workers 4 -- build/release/bin/cpp_linear
#include <array>
#include <cstdint>
#include <cstdio>
#include <muster.hpp>

namespace {

constexpr int64_t kTraining = 1000, kTest = 100;

struct Point {
  std::array<float, 2> x;
  float y;
};

float Uniform(uint64_t i) {  // in [-1, 1), from the number of the point
  i = (i + 1) * 0x9e3779b97f4a7c15u;
  i = (i ^ i >> 30) * 0xbf58476d1ce4e5b9u;
  i = (i ^ i >> 27) * 0x94d049bb133111ebu;
  return static_cast<float>((i ^ i >> 31) >> 40) / static_cast<float>(1 << 23) - 1.0f;
}

Point At(uint64_t i) {
  const float a = Uniform(3 * i), b = Uniform(3 * i + 1);
  return {{a, b}, 2 * a - 3 * b + 1 + 0.1f * Uniform(3 * i + 2)};
}

void Train() {
  muster::Job job;
  const muster::Variable weights = job.add("weights", {2}), bias = job.add("bias", {});
  float *const w = weights.weights(), *const b = bias.weights();
  float *const dw = weights.gradient(), *const db = bias.gradient();
  w[0] = w[1] = *b = 0;  // the initial values
  job.join(kTraining, 0, kTest);
  for (muster::Work work = job.next(); work.kind != MUSTER_END; work = job.next()) {
    if (work.kind == MUSTER_STEP_END) continue;
    const bool trains = work.kind == MUSTER_SLICE;
    double loss = 0;
    dw[0] = dw[1] = *db = 0;
    for (int64_t i = 0; i < work.count; ++i) {
      const Point point = At(static_cast<uint64_t>(work.samples[i] + (trains ? 0 : kTraining)));
      const float error = w[0] * point.x[0] + w[1] * point.x[1] + *b - point.y;
      loss += 0.5 * error * error;
      const auto batch = static_cast<float>(work.batch);
      dw[0] += error * point.x[0] / batch;
      dw[1] += error * point.x[1] / batch;
      *db += error / batch;
    }
    job.report(loss);
    job.done();
  }
  if (job.rank() == 0 && job.has_last_weights())
    std::printf("y = %.3f a + %.3f b + %.3f\n", w[0], w[1], *b);
}

}  // namespace

int main() {
  try {
    Train();
  } catch (const muster::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return error.code;
  }
}
