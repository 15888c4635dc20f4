// The data set formats (data.format), with one table row each in data_format.cc. They provide what
// is needed to build the network before any file is opened. worker/data reads the files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/graph/shape.h"
#include "proto/config_fwd.h"

namespace muster {

// The shape of a sample as stored and after preprocessing.
Shape StoredShape(const config::Data& data);
Shape InputShape(const config::Data& data);
// The number of classes. 0 for values, or if the number is in files that have not been read yet.
int64_t DataClasses(const config::Data& data);
// Whether samples have values to predict instead of classes.
bool HasValues(const config::Data& data);

// What a message calls a sample: "image", or "sample" for rows of features and for programs with
// their own model.
const char* SampleNoun(const config::Config& config);

// These return data.class_weights, data.class_names and data.preprocess.mixup_alpha; empty or 0 for
// values.
std::vector<float> ClassWeights(const config::Data& data);
std::vector<std::string> NamesOfClasses(const config::Data& data);
double MixupAlpha(const config::Data& data);

// Whether the data is read from data.dir.
bool NeedsFiles(const config::Data& data);
// Throws Error(kUsage) with advice on how to get the data if data.dir is needed and missing.
void RequireDataDir(const config::Data& data);

// The two sets whose files have the same names. The names of the classes tell which one is meant.
enum class MnistSet { kDigits, kFashion };
MnistSet MnistSetOf(const config::Data& data);

// Fills in missing settings that the format or its files provide: data.class_names, if there is one
// name per class, and data.npz. Throws Error(kData) if an IMAGE_FOLDER or NPZ cannot be read.
void ResolveFromFiles(config::Data& data);

// Whether mean and stddev must be measured: data.preprocess.measure_mean_stddev is set and has an
// effect, and neither mean nor stddev is given.
bool MeasuresNormalization(const config::Data& data);

// The length to which the shorter side of a photo is resized before the centre crop; 0: not
// resized. The default for a crop of 224 is 256, as in torchvision's recipes.
int64_t ShorterSide(const config::Preprocess& settings);

// The folders that contain the images of an IMAGE_FOLDER: dir/train, dir/val and dir/test, or other
// usual names for them, in upper or lower case. Each must contain class folders. A missing one is
// "". If all are missing, `dir` itself contains the class folders and is `training`.
struct ImageFolders {
  std::string training, validation, test;
};
ImageFolders FindImageFolders(const std::string& dir);
// Returns the path of the only class in `folder` if it holds folders itself, as if `folder` were
// one level too high; otherwise "". `names` are its class folders.
std::string OnlyFolderOfClasses(const std::string& folder, const std::vector<std::string>& names);
// Returns the sorted names of the folders in `folder`, except hidden ones. Throws Error(kData).
std::vector<std::string> ClassFolders(const std::string& folder);

}  // namespace muster
