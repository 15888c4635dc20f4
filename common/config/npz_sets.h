// Where data.format NPZ has its arrays, and what the network has to know of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/graph/shape.h"
#include "common/tensors/npz_reader.h"
#include "proto/config.pb.h"

namespace muster {

// A file, and the names of two arrays in it.
struct NpzSet {
  std::string file, x, y;
};
struct NpzSets {
  std::optional<NpzSet> training, validation, test;
};
// x and y of train.npz, val.npz and test.npz in the folder `dir`; or, in the file `dir`, x_train
// and y_train, x_val and y_val, x_test and y_test, or else x and y for training. Throws
// Error(kData) if there is none of them.
NpzSets FindNpzSets(const std::string& dir);

struct NpzSamples {
  int64_t count = 0;
  Shape shape;  // of each
  config::NpzData::Type type = config::NpzData::FLOAT32;
};
// What an array x holds. Throws Error(kData) for shapes and types that no network is trained on.
NpzSamples SamplesIn(const NpzReader& reader, const NpzArray& x);

struct NpzLabels {
  bool are_values = false;
  std::vector<int32_t> labels;  // classes, or the bits of finite floats
};
// The array y for so many samples. Throws Error(kData) if it has another length or shape, or holds
// anything but classes from 0 or finite values.
NpzLabels ReadNpzLabels(const NpzReader& reader, const std::string& y, int64_t samples);

// Fills in what data.npz leaves out, from the files in data.dir. Throws Error(kData).
void ResolveNpz(config::Data& data);

}  // namespace muster
