// When slices are divided otherwise, and how (cluster.shares: MEASURED): by how long each worker
// takes for a slice, where that saves more than it costs. It reads no clock and knows no rank:
// workers are places in a list.
//
// Owner: Shares.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace muster {

class SharePolicy {
 public:
  // The shares are looked at after so many steps, and not before so many seconds.
  static constexpr int64_t kSteps = 10;
  static constexpr double kSeconds = 1;
  // What would save less than this share of the slowest worker's time is noise.
  static constexpr double kLeastSaving = 0.04;
  // Both are as many times longer as the last changes were in vain.
  static constexpr int64_t kMostPatience = 64;

  struct Decision {
    std::vector<int64_t> slices;     // of each worker
    double now_ms = 0, then_ms = 0;  // what the slowest takes for its slices: so far, expected
    // The last change is taken back: steps have become longer by it.
    bool taken_back = false;
  };

  // The first step of a process is cold, and counts for nothing.
  void Begin(int64_t first_step) { from_step_ = first_step; }
  void EndStep(int64_t step, double seconds);
  bool IsDue() const;

  // Looks at the shares. `slices` each worker has, and takes `times` milliseconds for one. Another
  // division would begin with `step`, of the `left` that are to come.
  std::optional<Decision> Look(int64_t step, int64_t left, const std::vector<int64_t>& slices,
                               const std::vector<double>& times);
  // Others share from `step` on. `times` is empty where nothing is known.
  std::vector<int64_t> Divide(int64_t step, int64_t slices, const std::vector<double>& times,
                              size_t workers);

 private:
  // A change that has been made, and whose effect has not been seen yet.
  struct Trial {
    std::vector<int64_t> before;
    double usual_s = 0, promised_s = 0;  // of a step
  };
  // What is best, or even shares if they are nearly as good.
  static std::vector<int64_t> Best(int64_t slices, const std::vector<double>& times);
  void Restart();
  // Whether the last change was worse than none, by more than noise.
  bool WasBad(double usual_s);

  int64_t from_step_ = 0;        // since when the shares are as they are
  double first_s_ = 0;           // that step
  std::vector<double> seconds_;  // those after it, since the last look
  double sum_s_ = 0;
  std::optional<double> cost_s_;  // of the last change
  std::optional<Trial> trial_;
  int64_t patience_ = 1;
};

}  // namespace muster
