// Times algorithms and remembers the fastest (worker.autotune). What can be done in several ways
// asks here which one to take: products.cc and convolution_ways.h.
//
// Owner and thread: the backend's.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "worker/backend/algorithm_table.h"
#include "worker/backend/cuda/card.h"
#include "worker/backend/cuda/lt_product.h"
#include "worker/backend/tuning.h"

namespace muster::cuda {

class Tuner final : public Tuning {
 public:
  // `card` outlives it.
  explicit Tuner(const Card& card) : card_(card) {}

  void Measure() override;
  TuningResult Result() override;
  void Use(const std::string& choice) override;

  bool measures() const { return measures_; }
  // What was chosen; null: nothing, the shape decides.
  const std::string* Find(const std::string& key) const;
  // Runs each once, and then again with a clock; the fastest is chosen. One that cannot be run is
  // not. Throws what the last one threw if none can.
  struct Candidate {
    std::string name;
    std::function<void()> run;
  };
  void Choose(const std::string& key, const std::vector<Candidate>& candidates);

  // A product by the algorithm that was chosen for its kind; false: there is none. While it
  // measures, that is chosen now, among cublasLt's and `by_shape`.
  template <typename ByShape>
  bool Multiply(const ProductKind& kind, const ProductAddresses& at, const ByShape& by_shape) {
    if (measures_ && !products_.contains(kind)) ChooseProduct(kind, at, by_shape);
    const auto found = products_.find(kind);
    if (found == products_.end() || found->second == nullptr) return false;
    found->second->product.Run(at, found->second->algorithm);
    return true;
  }

  // Of an op that could not be timed for lack of memory.
  void Skipped() { ++skipped_; }

 private:
  struct TunedProduct {
    LtProduct product;
    cublasLtMatmulAlgo_t algorithm;
  };

  void ChooseProduct(const ProductKind& kind, const ProductAddresses& at,
                     const std::function<void()>& by_shape);
  std::unique_ptr<TunedProduct> MakeProduct(const std::string& key, const ProductKind& kind,
                                            const std::string& value) const;
  // Milliseconds.
  float Time(const std::function<void()>& run) const;

  const Card& card_;
  bool measures_ = false;
  AlgorithmTable table_;
  std::map<ProductKind, std::unique_ptr<TunedProduct>> products_;  // null: by shape
  int timed_ = 0, skipped_ = 0;
};

}  // namespace muster::cuda
