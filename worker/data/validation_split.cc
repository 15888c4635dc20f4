#include "worker/data/validation_split.h"

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/running_hash.h"

namespace muster {
namespace {

// Loads selected samples of a data set with its own loader. A sample's random choices depend on its
// number in the whole set.
class SelectionLoader final : public SampleLoader {
 public:
  SelectionLoader(std::unique_ptr<SampleLoader> all, const std::vector<int64_t>& samples)
      : all_(std::move(all)), samples_(samples) {}

  Shape shape() const override { return all_->shape(); }
  const PixelScale* pixel_scale() const override { return all_->pixel_scale(); }
  std::unique_ptr<LoaderScratch> MakeScratch() const override { return all_->MakeScratch(); }
  void Train(int64_t sample, uint64_t seed, int64_t epoch, LoaderScratch& scratch,
             ImageTarget image) const override {
    all_->Train(samples_[static_cast<size_t>(sample)], seed, epoch, scratch, image);
  }
  void Evaluate(int64_t sample, LoaderScratch& scratch, ImageTarget image) const override {
    all_->Evaluate(samples_[static_cast<size_t>(sample)], scratch, image);
  }

 private:
  const std::unique_ptr<SampleLoader> all_;
  const std::vector<int64_t>& samples_;
};

class Selection final : public Dataset {
 public:
  Selection(std::shared_ptr<const Dataset> all, std::vector<int64_t> samples)
      : all_(std::move(all)), samples_(std::move(samples)) {}

  int64_t size() const override { return std::ssize(samples_); }
  Shape shape() const override { return all_->shape(); }
  int64_t classes() const override { return all_->classes(); }
  int32_t Label(int64_t index) const override { return all_->Label(Of(index)); }
  std::string FileOf(int64_t index) const override { return all_->FileOf(Of(index)); }
  std::span<const uint8_t> Planes(int64_t index, std::vector<uint8_t>& buffer) const override {
    return all_->Planes(Of(index), buffer);
  }
  bool stores_planes() const override { return all_->stores_planes(); }
  std::unique_ptr<SampleLoader> MakeLoader(const config::Data& data) const override {
    if (stores_planes()) return Dataset::MakeLoader(data);
    return std::make_unique<SelectionLoader>(all_->MakeLoader(data), samples_);
  }
  // Counts this selection's share of the bytes; the other selection counts the rest.
  size_t bytes() const override {
    const double part = static_cast<double>(size()) / static_cast<double>(all_->size());
    return static_cast<size_t>(part * static_cast<double>(all_->bytes())) +
           samples_.size() * sizeof(int64_t);
  }
  bool is_mapped() const override { return all_->is_mapped(); }
  uint64_t Contents() const override { return all_->Contents(); }
  uint64_t Fingerprint() const override {
    RunningHash hash;
    const uint64_t all = all_->Fingerprint();
    hash.Add(std::as_bytes(std::span(&all, 1)));
    hash.Add(std::as_bytes(std::span(samples_)));
    return hash.value();
  }

 private:
  int64_t Of(int64_t index) const {
    MUSTER_CHECK(0 <= index && index < size());
    return samples_[static_cast<size_t>(index)];
  }

  const std::shared_ptr<const Dataset> all_;
  const std::vector<int64_t> samples_;  // ascending
};

}  // namespace

bool IsHeldBack(std::string_view name, double fraction, uint64_t seed) {
  RunningHash hash;
  hash.Add(std::as_bytes(std::span(&seed, 1)));
  hash.Add(name);
  return static_cast<double>(hash.value() >> 11) * 0x1p-53 < fraction;
}

void HoldBack(double fraction, uint64_t seed, Datasets& sets) {
  std::vector<int64_t> training, held_back;
  for (int64_t i = 0; i < sets.train->size(); ++i) {
    (IsHeldBack(std::to_string(i), fraction, seed) ? held_back : training).push_back(i);
  }
  if (training.empty() || held_back.empty()) {
    throw Error(ExitCode::kData,
                "data.validation_fraction={}: expected images for training and validation, found "
                "{} and {}: change the fraction or run.seed",
                fraction, training.size(), held_back.size());
  }
  sets.validation = std::make_shared<Selection>(sets.train, std::move(held_back));
  sets.train = std::make_shared<Selection>(sets.train, std::move(training));
}

}  // namespace muster
