// The formats of data sets (data.format), one row each in data_format.cc: what has to be known of
// the data before their files are opened, since the network is built first. worker/data reads the
// files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/graph/shape.h"
#include "proto/config_fwd.h"

namespace muster {

// The shape of a sample as stored, and after preprocessing.
Shape StoredShape(const config::Data& data);
Shape InputShape(const config::Data& data);
// 0 if only the files tell, and nobody has looked at them, or if there are values.
int64_t DataClasses(const config::Data& data);
// Whether samples have values to predict, instead of classes.
bool HasValues(const config::Data& data);

// data.class_weights, data.class_names and data.preprocess.mixup_alpha. Values to predict have none
// of them, whatever the config says.
std::vector<float> ClassWeights(const config::Data& data);
std::vector<std::string> NamesOfClasses(const config::Data& data);
double MixupAlpha(const config::Data& data);

// Whether the data are read from data.dir.
bool NeedsFiles(const config::Data& data);
// Throws Error(kUsage) that says how to get such data if data.dir is needed and missing.
void RequireDataDir(const config::Data& data);

// Fills in what is not given and the format or its files tell: data.class_names, unless there is a
// name for each class; data.npz. Throws Error(kData) for an IMAGE_FOLDER or an NPZ that cannot be
// read.
void ResolveFromFiles(config::Data& data);

// Whether mean and stddev are to be measured: data.preprocess.measure_mean_stddev is set and has an
// effect, and neither of them is given.
bool MeasuresNormalization(const config::Data& data);

// What the shorter side of a photo becomes before its centre is cut out; 0: what it is. By default
// 256 for a crop of 224, as in torchvision's recipes.
int64_t ShorterSide(const config::Preprocess& settings);

// Where an IMAGE_FOLDER has its images: dir/train, dir/val and dir/test, in any case and also under
// usual other names. Each must hold folders. One that is missing is ""; with none of them, the
// classes' folders lie in `dir` itself, which is then `training`.
struct ImageFolders {
  std::string training, validation, test;
};
ImageFolders FindImageFolders(const std::string& dir);
// The folders in `folder`, by name; not those that begin with a dot. Throws Error(kData) if it
// cannot be read.
std::vector<std::string> ClassFolders(const std::string& folder);

}  // namespace muster
