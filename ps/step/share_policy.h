// Decides when and how to redivide the slices (cluster.shares: MEASURED) by each worker's time per
// slice, if that saves more than it costs. It reads no clock and knows no ranks: workers are
// positions in a list.
//
// Owner: Shares.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace muster {

class SharePolicy {
 public:
  // The shares are reviewed after this many steps and at least this many seconds.
  static constexpr int64_t kSteps = 10;
  static constexpr double kSeconds = 1;
  // A saving below this share of the slowest worker's time is noise.
  static constexpr double kLeastSaving = 0.04;
  // Changes without effect multiply both intervals, up to this factor.
  static constexpr int64_t kMostPatience = 64;

  struct Decision {
    std::vector<int64_t> slices;  // by worker
    double now_ms = 0,
           then_ms = 0;  // time of the slowest worker for its slices: measured, expected
    // Reverts the last change because it made steps longer.
    bool taken_back = false;
  };

  // The first step of a process is not measured, because it is cold.
  void Begin(int64_t first_step) { from_step_ = first_step; }
  void EndStep(int64_t step, double seconds);
  bool IsDue() const;

  // Reviews the shares. Each worker has `slices` and takes `times` milliseconds per slice. A new
  // division would begin at `step` and last for the `left` remaining steps.
  std::optional<Decision> Look(int64_t step, int64_t left, const std::vector<int64_t>& slices,
                               const std::vector<double>& times);
  // Called when a different set of workers shares the slices from `step` on. Returns the new
  // division. `times` is empty if unknown.
  std::vector<int64_t> Divide(int64_t step, int64_t slices, const std::vector<double>& times,
                              size_t workers);

 private:
  // A change whose effect is not known yet.
  struct Trial {
    std::vector<int64_t> before;
    double usual_s = 0, promised_s = 0;  // seconds per step
  };
  // The best division, or even shares if they are nearly as good.
  static std::vector<int64_t> Best(int64_t slices, const std::vector<double>& times);
  void Restart();
  // Whether the last change made steps longer, by more than noise.
  bool WasBad(double usual_s);

  int64_t from_step_ = 0;        // first step with the current shares
  double first_s_ = 0;           // duration of that step
  std::vector<double> seconds_;  // durations of later steps since the last review
  double sum_s_ = 0;
  std::optional<double> cost_s_;  // cost of the last change
  std::optional<Trial> trial_;
  int64_t patience_ = 1;
};

}  // namespace muster
