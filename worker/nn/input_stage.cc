#include "worker/nn/input_stage.h"

#include "common/base/error.h"

namespace muster {
namespace {

template <typename T>
T* At(DeviceBuffer& memory, size_t offset) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(memory.data()) + offset);
}

}  // namespace

InputStage::InputStage(Backend& backend, int64_t image) : backend_(backend), image_(image) {}

InputStage::Places InputStage::PlacesFor(int64_t count) const {
  const auto n = static_cast<size_t>(count), numbers = n * static_cast<size_t>(image_);
  Places places{};
  const auto take = [&](size_t bytes) {
    const size_t at = places.all;
    places.all += (bytes + 63) / 64 * 64;
    return at;
  };
  places.images = take(numbers * BytesOf(backend_.activation_type()));
  places.labels = take(n * sizeof(int32_t));
  places.sample_ids = take(n * sizeof(int64_t));
  places.sums = take(sizeof(LossSums));
  places.predictions = take(n * sizeof(int32_t));
  places.arrived = take(numbers * (converts() ? sizeof(float) : sizeof(uint8_t)));
  return places;
}

size_t InputStage::ConvertedBytes(int64_t count) const {
  return converts() ? static_cast<size_t>(count * image_) * BytesOf(backend_.activation_type()) : 0;
}

size_t InputStage::BytesFor(int64_t count) const {
  if (count == 0) return 0;
  if (!needed()) return ConvertedBytes(count);
  return sets_.size() * PlacesFor(count).all;
}

void InputStage::Allocate(int64_t count) {
  if (!needed()) {
    if (converts()) converted_ = backend_.Allocate(ConvertedBytes(count));
    return;
  }
  staged_ = {};
  for (Set& set : sets_) {
    set = {.memory = backend_.Allocate(PlacesFor(count).all),
           .there = backend_.MakeEvent(),
           .released = backend_.MakeEvent(),
           .returned = backend_.MakeEvent()};
  }
}

void InputStage::Use(StoredImages* images) {
  MUSTER_CHECK(needed() || images == nullptr);
  images_ = images;
  staged_ = {};
}

// Makes kCopyIn wait until the set may be overwritten.
void InputStage::AwaitUses(Set& set) {
  backend_.Await(Queue::kCopyIn, *set.released);
  backend_.Await(Queue::kCopyIn, *set.returned);
  backend_.Await(Queue::kCopyIn, *set.there);  // for a batch that was made but not used
}

void InputStage::CopyIn(Set& set, const TowerInput& input) {
  const Places places = PlacesFor(input.count);
  const auto n = static_cast<size_t>(input.count);
  AwaitUses(set);
  const size_t numbers = n * static_cast<size_t>(image_);
  if (input.pixels != nullptr) {
    backend_.CopyIn(At<uint8_t>(*set.memory, places.arrived), input.pixels, numbers);
  } else {
    backend_.CopyIn(At<float>(*set.memory, converts() ? places.arrived : places.images),
                    input.images, numbers * sizeof(float));
  }
  backend_.CopyIn(At<int32_t>(*set.memory, places.labels), input.labels, n * sizeof(int32_t));
  if (input.sample_ids != nullptr) {
    backend_.CopyIn(At<int64_t>(*set.memory, places.sample_ids), input.sample_ids,
                    n * sizeof(int64_t));
  }
  backend_.Record(Queue::kCopyIn, *set.there);
}

void InputStage::MakeIn(Set& set, const TowerInput& input) {
  const Places places = PlacesFor(input.count);
  auto* const sample_ids = At<int64_t>(*set.memory, places.sample_ids);
  AwaitUses(set);
  backend_.CopyIn(sample_ids, input.sample_ids, static_cast<size_t>(input.count) * sizeof(int64_t));
  backend_.Record(Queue::kCopyIn, *set.there);
  backend_.Await(Queue::kInput, *set.there);
  images_->Make(sample_ids, input.count, input.epoch, At<std::byte>(*set.memory, places.images),
                At<int32_t>(*set.memory, places.labels));
  backend_.Record(Queue::kInput, *set.there);
}

// Makes activations of the images that CopyIn has brought.
void InputStage::Convert(Set& set, const TowerInput& input) {
  const Places places = PlacesFor(input.count);
  void* const images = At<std::byte>(*set.memory, places.images);
  if (input.pixels != nullptr) {
    backend_.ScalePixels(images, At<uint8_t>(*set.memory, places.arrived), input.count * image_,
                         *input.scale);
  } else if (converts()) {
    backend_.ToActivations(images, At<float>(*set.memory, places.arrived), input.count * image_);
  }
}

// Puts the batch into the set, from where it comes.
void InputStage::Fill(Set& set, const TowerInput& input) {
  MUSTER_CHECK(set.memory != nullptr);
  images_ == nullptr ? CopyIn(set, input) : MakeIn(set, input);
}

void InputStage::Stage(const TowerInput& input) {
  if (!needed() || input.count == 0 || input.key == BatchKey{}) return;
  staged_ = {};
  Fill(sets_[1 - current_], input);
  staged_ = input.key;
}

DeviceInput InputStage::Bring(const TowerInput& input, LossSums& sums) {
  if (!needed()) {
    MUSTER_CHECK(input.pixels == nullptr);
    if (converts()) {
      backend_.ToActivations(converted_->data(), input.images, input.count * image_);
    }
    return {.count = input.count,
            .images = converts() ? converted_->data() : input.images,
            .labels = input.labels,
            .sample_ids = input.sample_ids,
            .epoch = input.epoch,
            .sums = &sums,
            .predictions = input.predictions,
            .logits = input.logits};
  }
  const bool staged = staged_ != BatchKey{} && staged_ == input.key;
  staged_ = {};
  current_ = 1 - current_;
  Set& set = sets_[current_];
  if (!staged) Fill(set, input);
  backend_.Await(Queue::kCompute, *set.there);
  const Places places = PlacesFor(input.count);
  if (images_ == nullptr) Convert(set, input);
  return {.count = input.count,
          .images = At<std::byte>(*set.memory, places.images),
          .labels = At<int32_t>(*set.memory, places.labels),
          .sample_ids = At<int64_t>(*set.memory, places.sample_ids),
          .epoch = input.epoch,
          .sums = At<LossSums>(*set.memory, places.sums),
          .predictions =
              input.predictions == nullptr ? nullptr : At<int32_t>(*set.memory, places.predictions),
          .logits = input.logits};
}

void InputStage::BringBack(const TowerInput& input, LossSums& sums) {
  if (!needed()) return;
  Set& set = sets_[current_];
  const Places places = PlacesFor(input.count);
  backend_.Record(Queue::kCompute, *set.returned);
  backend_.Await(Queue::kCopyOut, *set.returned);
  backend_.CopyOut(&sums, At<LossSums>(*set.memory, places.sums), sizeof(LossSums));
  if (input.predictions != nullptr) {
    backend_.CopyOut(input.predictions, At<int32_t>(*set.memory, places.predictions),
                     static_cast<size_t>(input.count) * sizeof(int32_t));
  }
  backend_.Record(Queue::kCopyOut, *set.returned);
}

void InputStage::Release() {
  if (needed()) backend_.Record(Queue::kCompute, *sets_[current_].released);
}

}  // namespace muster
