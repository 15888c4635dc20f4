// CIFAR-10 (Krizhevsky, "Learning multiple layers of features from tiny images", 2009) in its
// binary version, https://www.cs.toronto.edu/~kriz/cifar.html: data_batch_1.bin … data_batch_5.bin
// and test_batch.bin. Each is a sequence of 3,073-byte records: one label byte (0-9) and 3,072
// pixels (32x32; the red, the green, then the blue plane, row by row).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "worker/data/dataset.h"

namespace muster {

inline constexpr int64_t kCifar10Side = 32;
inline constexpr int64_t kCifar10Channels = 3;
inline constexpr int64_t kCifar10Classes = 10;
inline constexpr int64_t kCifar10PixelBytes = kCifar10Channels * kCifar10Side * kCifar10Side;
inline constexpr int64_t kCifar10RecordBytes = 1 + kCifar10PixelBytes;
inline constexpr const char* kCifar10Folder = "cifar-10-batches-bin";
inline constexpr std::array<const char*, 5> kCifar10TrainFiles = {
    "data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
    "data_batch_5.bin"};
inline constexpr const char* kCifar10TestFile = "test_batch.bin";
inline constexpr int64_t kCifar10PublishedRecords = 10000;  // in each of the six files

// The file that records how a synthetic data set (`muster data synth`) was made, in lines of the
// form "name value".
inline constexpr const char* kSyntheticNote = "synthetic.txt";
inline constexpr const char* kNoteTrainPerFile = "images_per_training_file";
inline constexpr const char* kNoteTest = "test_images";

// Returns `dir` if it holds data files, else dir/cifar-10-batches-bin if that exists, else `dir`.
std::string FindCifar10(const std::string& dir);

// Maps the six files in `dir` or dir/cifar-10-batches-bin and checks them: a whole number of
// records, at least one, every label in range. The number of records reveals a file cut off between
// two records: if any training file has the published 10,000, all six must; a synthetic set must
// match its note. Other sets may have files of any size, but five equal smaller sizes cause a
// remark. Throws Error(kData) with the file, the expectation and what was found.
Datasets OpenCifar10(const std::string& dir);
// Does the same for test_batch.bin alone. Training files may be missing; only their sizes are read.
std::unique_ptr<Dataset> OpenCifar10Test(const std::string& dir);

// Returns advice for data in `dir` that cannot be used.
std::string Cifar10Remedy(const std::string& dir);

}  // namespace muster
