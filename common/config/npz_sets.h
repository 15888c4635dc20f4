// Finds and reads the arrays of data.format NPZ.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/graph/shape.h"
#include "common/tensors/npz_reader.h"
#include "proto/config.pb.h"

namespace muster {

// A file and the names of two arrays in the file.
struct NpzSet {
  std::string file, x, y;
};
struct NpzSets {
  std::optional<NpzSet> training, validation, test;
};
// If `dir` is a folder, finds x and y in train.npz, val.npz and test.npz. If `dir` is a file, finds
// x_train and y_train, x_val and y_val, x_test and y_test, or otherwise x and y for training.
// Throws Error(kData) if there are none.
NpzSets FindNpzSets(const std::string& dir);

struct NpzSamples {
  int64_t count = 0;
  Shape shape;  // of one sample
  config::NpzData::Type type = config::NpzData::FLOAT32;
};
// Describes the array x. Throws Error(kData) for shapes and types that cannot be trained on.
NpzSamples SamplesIn(const NpzReader& reader, const NpzArray& x);

struct NpzLabels {
  bool are_values = false;
  std::vector<int32_t> labels;  // classes, or the bits of finite floats
};
// Reads the array y of `samples` samples. Throws Error(kData) if its length or shape is wrong, or
// if it contains anything but finite values or classes numbered from 0.
NpzLabels ReadNpzLabels(const NpzReader& reader, const std::string& y, int64_t samples);

// Fills in missing fields of data.npz from the files in data.dir. Throws Error(kData).
void ResolveNpz(config::Data& data);

}  // namespace muster
