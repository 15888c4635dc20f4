// A program whose weights have a closed form: the loss of sample i is a_i w, with a_i from
// tests/e2e/own_program.h. All numbers are exact in float.
//
//   own_program MODE
//
// Modes: push, whole, scaled, slow, fail, other, leave, ends, rate, momentum, own, own_nan,
// own_hangs, own_ends, own_late.
#include "tests/e2e/own_program.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "client/muster.h"

namespace {

using namespace muster::testing::own_program;

muster_job* job;

void Check(int code) {
  if (code == MUSTER_OK) return;
  std::fprintf(stderr, "error: %s\n", muster_error(job));
  muster_destroy(job);
  std::exit(code);
}

// The bits of "inexact" depend on the order of additions. "index" is of all samples, "odd" of the
// slices or blocks that begin with an odd sample.
void AddScalars(const muster_work& work) {
  double sum = 0;
  for (int64_t i = 0; i < work.count; ++i) sum += static_cast<double>(work.samples[i]);
  Check(muster_add_scalar(job, "index", sum));
  Check(muster_add_scalar(job, "inexact", sum / 7));
  if (work.samples[0] % 2 == 1) Check(muster_add_scalar(job, "odd", sum));
  if (work.kind != MUSTER_TEST_BLOCK) return;
  const auto refuses = [](const char* name) {
    if (muster_add_scalar(job, name, 1) != MUSTER_USAGE) std::exit(1);
  };
  for (const char* name : {"", "a b", "index", "\xc3\xa4"}) refuses(name);
  refuses(std::string(65, 'a').c_str());
  refuses(nullptr);
  Check(muster_add_scalar(job, "nan", std::nan("")));
  Check(muster_add_scalar(job, std::string(64, 'z').c_str(), 0));
  for (int i = 0; i < 27; ++i) {
    Check(muster_add_scalar(job, ("more/" + std::to_string(i)).c_str(), 0));
  }
  if (work.samples[0] % 2 == 1) refuses("the 33rd");
}

// The plan of this work is this work.
void CheckPlan(const muster_work& work) {
  muster_work planned;
  Check(muster_plan(job, work.step, work.index, &planned));
  const bool same = planned.epoch == work.epoch && planned.batch == work.batch &&
                    planned.seed == work.seed && planned.count == work.count &&
                    std::equal(work.samples, work.samples + work.count, planned.samples);
  if (!same || muster_plan(job, 1 << 20, 0, &planned) != MUSTER_USAGE) std::exit(1);
}

// "type: MOMENTUM momentum: 0.5" of this program itself.
class Momentum {
 public:
  Momentum(const std::vector<int>& numbers, const std::string& mode)
      : numbers_(numbers), mode_(mode) {
    for (const int64_t count : kCounts) sums_.emplace_back(count);
    size_t bytes = 0;
    const auto* from = static_cast<const float*>(muster_state(job, &bytes));
    for (std::vector<float>& sum : sums_) {
      if (from == nullptr) break;
      std::copy_n(from, sum.size(), sum.begin());
      from += sum.size();
    }
    if (bytes != 0 && bytes != (kCounts[0] + kCounts[1] + kCounts[2]) * sizeof(float)) std::exit(1);
  }

  // Returns false if this work is none of the updates.
  bool Do(const muster_work& work) {
    if (work.kind == MUSTER_SAVE) {
      for (const std::vector<float>& sum : sums_)
        Check(muster_save(job, sum.data(), sum.size() * sizeof(float)));
    } else if (work.kind == MUSTER_UPDATE) {
      if (muster_rank(job) != -1 || muster_save(job, "", 1) != MUSTER_USAGE ||
          muster_report(job, 0) != MUSTER_USAGE || work.batch != kBatch)
        std::exit(1);
      Update(static_cast<float>(Rate(work.epoch)));
      if (mode_ == "own_nan") muster_weights(job, numbers_[1])[1] = std::nanf("");
      if (mode_ == "own_hangs") ::pause();
      if (mode_ == "own_ends") std::exit(3);
    } else {
      return false;
    }
    Check(muster_done(job));
    return true;
  }

 private:
  void Update(float rate) {
    for (size_t v = 0; v < sums_.size(); ++v) {
      float* const weights = muster_weights(job, numbers_[v]);
      const float* const gradient = muster_gradient(job, numbers_[v]);
      for (size_t j = 0; j < sums_[v].size(); ++j) {
        sums_[v][j] = 0.5f * sums_[v][j] + gradient[j];
        weights[j] -= rate * sums_[v][j];
      }
    }
  }

  const std::vector<int> numbers_;
  const std::string mode_;
  std::vector<std::vector<float>> sums_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "push";
  const char* const rank = std::getenv("MUSTER_RANK");
  const char* const seed = std::getenv("MUSTER_SEED");
  if (seed == nullptr || std::string(seed) != "1") std::exit(1);
  const bool is_second = rank != nullptr && *rank == '1';
  job = muster_create();
  std::vector<int> numbers;
  for (size_t v = 0; v < std::size(kCounts); ++v) {
    const int64_t shape[] = {kCounts[v] + (mode == "other" && is_second && v == 1 ? 1 : 0)};
    numbers.push_back(muster_add_variable(job, kNames[v], shape, 1, nullptr));
  }
  int averaged = -1;
  const bool sets_rate = mode == "rate" || mode == "momentum" || mode.starts_with("own");
  if (sets_rate) {
    const muster_variable_options options{.is_averaged = 1};
    averaged = muster_add_variable(job, "averaged", nullptr, 0, &options);
    if (muster_set_learning_rate(job, 1) != MUSTER_USAGE) std::exit(1);
    const char* const optimizer = mode == "rate"       ? "type: SGD"
                                  : mode == "momentum" ? "type: MOMENTUM momentum: 0.5"
                                                       : "type: PROGRAM";
    Check(muster_set_optimizer(job, optimizer, Rate(0)));
  }
  for (size_t v = 0; v < std::size(kCounts); ++v) {
    float* const weights = muster_weights(job, numbers[v]);
    for (int64_t j = 0; j < kCounts[v]; ++j) weights[j] = Initial(j);
  }
  if (mode == "scaled") Check(muster_set_loss_scaling(job, 1));
  Check(muster_join(job, kSamples, 0, kSamples));
  const double scale = mode == "scaled" ? 65536 : 1;
  Momentum momentum(numbers, mode);
  for (;;) {
    muster_work work;
    Check(muster_next(job, -1, &work));
    if (momentum.Do(work)) continue;
    if (work.kind == MUSTER_END) break;
    if (work.kind == MUSTER_STEP_END) continue;
    if (is_second && work.step == 2 && mode == "fail") {
      Check(muster_fail(job, "no more fuel"));
      muster_destroy(job);
      return 2;
    }
    if (is_second && work.step == 2 && mode == "leave") Check(muster_leave(job));
    if (is_second && work.step == 2 && mode == "ends") std::exit(3);
    if (work.kind == MUSTER_SLICE && work.loss_scale != scale) std::exit(1);
    double loss = 0;
    for (int64_t i = 0; i < work.count; ++i) loss += Slope(work.samples[i], 0);
    if (work.kind == MUSTER_TEST_BLOCK) loss -= static_cast<double>(work.count);  // negative
    AddScalars(work);
    if (sets_rate && work.kind == MUSTER_SLICE) {
      CheckPlan(work);
      Check(muster_set_learning_rate(job, Rate(work.epoch)));
      *muster_gradient(job, averaged) =
          Averaged(work.step) * static_cast<float>(work.count) / static_cast<float>(work.batch);
    }
    Check(muster_report(job, loss));
    if (muster_add_scalar(job, "late", 0) != MUSTER_USAGE) std::exit(1);
    for (size_t v = std::size(kCounts); v-- > 0 && work.kind == MUSTER_SLICE;) {
      float* const gradient = muster_gradient(job, numbers[v]);
      for (int64_t j = 0; j < kCounts[v]; ++j) {
        float sum = 0;
        for (int64_t i = 0; i < work.count; ++i) sum += Slope(work.samples[i], j);
        gradient[j] = sum / static_cast<float>(work.batch) * static_cast<float>(work.loss_scale);
      }
      if (mode != "whole") Check(muster_push(job, numbers[v]));
      if (mode == "slow") ::usleep(10'000);  // the server updates what it has
    }
    Check(muster_done(job));
  }
  // The last weights are here, too.
  for (size_t v = 0; v < std::size(kCounts) && muster_has_last_weights(job) != 0; ++v) {
    std::printf("%s %.9g\n", kNames[v], muster_weights(job, numbers[v])[1]);
  }
  const bool fails = mode == "own_late" && muster_rank(job) == -1;
  muster_destroy(job);
  return fails ? 5 : 0;
}
