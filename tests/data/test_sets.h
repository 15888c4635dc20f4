// Small data sets for tests, as files and in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/data/temp_dir.h"
#include "worker/data/cifar10.h"
#include "worker/data/dataset.h"

namespace muster::testing {

// `count` records with random pixels and labels 0, 1, … 9, 0, …
inline std::string Records(int count, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes(static_cast<size_t>(count * kCifar10RecordBytes), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  for (int i = 0; i < count; ++i) {
    bytes[static_cast<size_t>(i * kCifar10RecordBytes)] = static_cast<char>(i % 10);
  }
  return bytes;
}

// Writes a set in CIFAR-10's layout into `dir`: `train` records per file, `test` in test_batch.bin.
inline void WriteCifar10(const std::filesystem::path& dir, int train = 3, int test = 4) {
  std::filesystem::create_directories(dir);
  for (unsigned i = 0; i < 5; ++i) WriteBytes(dir / kCifar10TrainFiles[i], Records(train, i));
  WriteBytes(dir / kCifar10TestFile, Records(test, 5));
}

// The pixels of a sample of a set in memory.
inline std::span<const uint8_t> PlanesOf(const Dataset& set, int64_t index) {
  std::vector<uint8_t> buffer;
  const std::span<const uint8_t> planes = set.Planes(index, buffer);
  if (!buffer.empty()) throw std::logic_error("the pixels lie in a buffer that is gone");
  return planes;
}

// Random images of any shape in memory. Calls `on_read` with the index of every image that is read.
class MemorySet final : public Dataset {
 public:
  MemorySet(int64_t size, Shape shape, unsigned seed = 1) : size_(size), shape_(shape) {
    std::mt19937 random(seed);
    pixels_.resize(static_cast<size_t>(size * shape.elements()));
    for (uint8_t& pixel : pixels_) pixel = static_cast<uint8_t>(random());
  }
  int64_t size() const override { return size_; }
  Shape shape() const override { return shape_; }
  int64_t classes() const override { return 10; }
  int32_t Label(int64_t index) const override { return static_cast<int32_t>(index * 7 % 10); }
  std::span<const uint8_t> Planes(int64_t index, std::vector<uint8_t>&) const override {
    if (on_read) on_read(index);
    const auto elements = static_cast<size_t>(shape_.elements());
    return std::span(pixels_).subspan(static_cast<size_t>(index) * elements, elements);
  }
  size_t bytes() const override { return pixels_.size(); }
  uint64_t Fingerprint() const override { return 0; }

  std::function<void(int64_t)> on_read;

 private:
  int64_t size_;
  Shape shape_;
  std::vector<uint8_t> pixels_;
};

}  // namespace muster::testing
