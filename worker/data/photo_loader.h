// Converts JPEG and PNG files to the network's input: decode, resize, crop, flip, color, normalize.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "proto/config.pb.h"
#include "worker/data/sample_loader.h"
#include "worker/image/augment.h"
#include "worker/image/crop.h"

namespace muster {

struct Photo {
  std::string path;  // relative to the folder of its set, or absolute
  int64_t bytes = 0;
  int32_t label = 0;
};

struct PhotoFiles {
  std::string folder;  // "": the current folder
  std::vector<Photo> photos;
  // Receives the error for each photo that cannot be read; the photo is then black. If null, such a
  // photo throws.
  std::shared_ptr<std::vector<std::string>> troubles = nullptr;
};

// `files` must outlive the loader.
class PhotoLoader final : public SampleLoader {
 public:
  PhotoLoader(const PhotoFiles& files, const config::Data& data);

  Shape shape() const override { return shape_; }
  std::unique_ptr<LoaderScratch> MakeScratch() const override;
  const PixelScale* pixel_scale() const override { return &normalizer_.scale(); }
  // Erasing makes floats that are no bytes, so it needs floats.
  void Train(int64_t sample, uint64_t seed, int64_t epoch, LoaderScratch& scratch,
             ImageTarget image) const override;
  void Evaluate(int64_t sample, LoaderScratch& scratch, ImageTarget image) const override;

  // The pixels of Evaluate before normalization, [channel][row][column], in `buffer`.
  std::span<const uint8_t> Planes(int64_t sample, std::vector<uint8_t>& buffer) const;

 private:
  struct Scratch;
  SampleGeometry DrawGeometry(ImageSize photo, const RandomStream& stream) const;
  // Reads the file, chooses the geometry from the photo's size, and computes the pixels in scratch.
  // `choose` also decides whether a smaller decoded image suffices.
  template <typename Choose>
  void MakePixels(int64_t sample, const Choose& choose, Scratch& scratch) const;
  void Write(const std::vector<uint8_t>& pixels, ImageTarget image) const;
  template <typename Choose>
  void DecodeSample(const std::string& path, const Choose& choose, Scratch& scratch) const;

  const PhotoFiles& files_;
  const std::string data_dir_;
  const config::Preprocess settings_;
  const Shape shape_;
  const CropSettings crop_;
  const ColorJitter jitter_;
  const Normalizer normalizer_;
};

// Reads a file, or its first `most` bytes. Throws an Error whose message begins with `path`.
void ReadPhotoFile(const std::string& path, std::vector<uint8_t>& bytes, size_t most = SIZE_MAX);

// A hash of this build's JPEG decoder, computed from the decoded pixels of a small image: versions
// that decode differently have different hashes.
uint64_t DecoderFingerprint();

}  // namespace muster
