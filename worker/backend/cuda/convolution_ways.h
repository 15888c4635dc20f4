// The ways in which a pass of a convolution can be done, and which of them is taken: by shape the
// first that there is; with worker.autotune what was chosen.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "worker/backend/cuda/convolution.h"
#include "worker/backend/cuda/tuner.h"

namespace muster::cuda {

template <typename Pass>
struct ConvolutionWay {
  std::string name;
  std::function<std::unique_ptr<Pass>()> make;  // null: there is none here
};

// "forward" and the numbers of the convolution, as the choice of algorithms has it.
std::string ConvolutionKey(const char* pass, const ConvolutionRequest& request);

// All ways at once, of which the first run chooses.
template <typename Pass, typename Args>
class TimedPass final : public Pass {
 public:
  TimedPass(Tuner& tuner, std::string key) : tuner_(tuner), key_(std::move(key)) {}
  void Add(std::string name, std::unique_ptr<Pass> way) {
    ways_.emplace_back(std::move(name), std::move(way));
  }

  size_t scratch_bytes() const override {
    size_t most = 0;
    for (const auto& [name, way] : ways_) most = std::max(most, way->scratch_bytes());
    return most;
  }
  void Run(const Args& args) override {
    if (tuner_.Find(key_) == nullptr) {
      std::vector<Tuner::Candidate> candidates;
      for (const auto& [name, way] : ways_) {
        candidates.push_back({name, [&args, pass = way.get()] { pass->Run(args); }});
      }
      tuner_.Choose(key_, candidates);
    }
    for (const auto& [name, way] : ways_) {
      if (name == *tuner_.Find(key_)) way->Run(args);
    }
  }

 private:
  Tuner& tuner_;
  const std::string key_;
  std::vector<std::pair<std::string, std::unique_ptr<Pass>>> ways_;
};

template <typename Pass, typename Args>
std::unique_ptr<Pass> ChooseWay(Card& card, const std::string& key,
                                const std::vector<ConvolutionWay<Pass>>& ways) {
  Tuner* const tuner = card.tuner();
  const std::string* const chosen = tuner == nullptr ? nullptr : tuner->Find(key);
  const bool times = tuner != nullptr && tuner->measures() && chosen == nullptr;
  auto timed = times ? std::make_unique<TimedPass<Pass, Args>>(*tuner, key) : nullptr;
  for (const ConvolutionWay<Pass>& way : ways) {
    if (chosen != nullptr && way.name != *chosen) continue;
    std::unique_ptr<Pass> made = way.make();
    if (made == nullptr) continue;
    if (!times) {
      card.convolutions().Record(key, way.name);
      return made;
    }
    timed->Add(way.name, std::move(made));
  }
  if (times) return timed;
  throw Error(
      ExitCode::kData,
      "the choice of algorithms (worker.autotune) says \"{}\" for \"{}\", which is not done "
      "in that way here: set worker.autotune=false, or begin another run",
      chosen == nullptr ? "" : *chosen, key);
}

}  // namespace muster::cuda
