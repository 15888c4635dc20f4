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
// remark counts them. Throws an Error(kData) that names the class if there are no images for
// evaluation, if the classes of the sets or of data.class_names differ, if a class has no image, or
// if the names of two folders differ only in case.
//
// A sample's file is read and decoded when the sample is used. If the file cannot be decoded,
// throws an Error(kData) that names it.
Datasets OpenImageFolder(const config::Data& data, uint64_t seed);
// Does the same for one set only: the test set or, if there is none, the validation set. A folder
// without train, val and test is a test set if validation_fraction is 0.
Datasets OpenImageFolderTest(const config::Data& data, uint64_t seed);

// Photos outside a data set; their labels are 0.
struct LoosePhotos {
  std::shared_ptr<const Dataset> set;
  std::vector<std::string> paths;  // the path of each sample
  // For each sample, the error if it could not be read or decoded when it was loaded, else "". Such
  // a sample is black.
  std::shared_ptr<const std::vector<std::string>> troubles;
};
// `paths` are files with any names, and folders, whose JPEG and PNG files are used in the order of
// their paths. Throws Error(kData) for a folder without such files.
LoosePhotos OpenLoosePhotos(const std::vector<std::string>& paths, const config::Data& data);

}  // namespace muster
