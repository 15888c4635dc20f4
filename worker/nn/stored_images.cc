#include "worker/nn/stored_images.h"

#include <algorithm>
#include <vector>

#include "common/base/error.h"

namespace muster {
namespace {

constexpr size_t kPieceBytes = size_t{2} << 20;  // size of one copy
constexpr double kPatience = 60;                 // seconds, for one copy

size_t RoundUp(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

StoredImages::StoredImages(Backend& backend, const ImageRecipe& recipe, int64_t samples,
                           int64_t most)
    : backend_(backend),
      samples_(samples),
      most_(most),
      image_(static_cast<size_t>(recipe.stored.elements())),
      labels_(RoundUp(static_cast<size_t>(samples) * image_)),
      scratch_(labels_ + RoundUp(static_cast<size_t>(samples) * sizeof(int32_t))),
      op_(backend.MakeImageOp(recipe)) {
  MUSTER_CHECK(op_ != nullptr && samples > 0 && 0 < most && most <= samples);
}

void StoredImages::Upload(const Read& read) {
  backend_.Enter();
  memory_ = backend_.Allocate(bytes());
  try {
    Fill(read);
  } catch (...) {
    backend_.Drain();
    memory_.reset();
    throw;
  }
}

void StoredImages::Fill(const Read& read) {
  const std::unique_ptr<Event> copied = backend_.MakeEvent();
  const auto copy = [&](size_t to, const void* from, size_t bytes) {
    backend_.CopyIn(At<std::byte>(to), from, bytes);
    backend_.Record(Queue::kCopyIn, *copied);
    if (copied->Wait(kPatience)) return;
    throw Error(ExitCode::kDeadline, "copying images to the device: no progress for {} s",
                kPatience);
  };
  std::vector<int32_t> labels;
  std::vector<uint8_t> piece;
  piece.reserve(std::max(kPieceBytes, image_));
  size_t begin = 0;  // index of the first image of the piece
  for (int64_t i = 0; i < samples_; ++i) {
    const Sample sample = read(i);
    MUSTER_CHECK(sample.planes.size() == image_);
    labels.push_back(sample.label);
    piece.insert(piece.end(), sample.planes.begin(), sample.planes.end());
    if (i + 1 < samples_ && piece.size() + image_ <= kPieceBytes) continue;
    copy(begin, piece.data(), piece.size());
    begin += piece.size();
    piece.clear();
  }
  copy(labels_, labels.data(), labels.size() * sizeof(int32_t));
  backend_.Await(Queue::kInput, *copied);
}

void StoredImages::Make(const int64_t* sample_ids, int64_t count, int64_t epoch, void* batch,
                        int32_t* batch_labels) {
  MUSTER_CHECK(uploaded() && 0 < count && count <= most_);
  op_->Run({.images = At<uint8_t>(0),
            .labels = At<int32_t>(labels_),
            .sample_ids = sample_ids,
            .count = count,
            .epoch = epoch,
            .batch = batch,
            .batch_labels = batch_labels,
            .scratch = At<std::byte>(scratch_)});
}

}  // namespace muster
