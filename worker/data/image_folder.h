// Data sets of JPEG and PNG files, one folder for each class: data.format IMAGE_FOLDER.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/data/dataset.h"

namespace muster {

// Lists the files below dir/train, dir/val and dir/test (FindImageFolders), or below `dir` itself.
// Without val, data.validation_fraction splits photos off by their path relative to `dir`. Files
// without a JPEG or PNG extension, and those listed in data.image_folder.exclude, are ignored; the
// remark counts them. Throws Error(kData) that names the class if there are no images for
// evaluation, if the classes of the sets or of data.class_names differ, if a class has no image, or
// if two folders only differ in upper and lower case.
//
// A sample's file is read and decoded when the sample is used. A file that cannot be decoded throws
// Error(kData) that names it.
Datasets OpenImageFolder(const config::Data& data, uint64_t seed);
// The same for one set only: the test set, or else the validation set. A folder without train, val
// and test is a test set if validation_fraction is 0.
Datasets OpenImageFolderTest(const config::Data& data, uint64_t seed);

// Photos outside a data set; their labels are 0.
struct LoosePhotos {
  std::shared_ptr<const Dataset> set;
  std::vector<std::string> paths;  // the path of each sample
  // For each loaded sample that could not be read or decoded, the error; such a sample is black.
  // Else "".
  std::shared_ptr<const std::vector<std::string>> troubles;
};
// `paths`: files with any names, and folders, whose JPEG and PNG files are sorted by path. Throws
// Error(kData) for a folder without any.
LoosePhotos OpenLoosePhotos(const std::vector<std::string>& paths, const config::Data& data);

}  // namespace muster
