// A data set of JPEG and PNG files, one folder for each class: data.format IMAGE_FOLDER.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/data/dataset.h"

namespace muster {

// Lists the files below dir/train, dir/val and dir/test (FindImageFolders), or below `dir` itself.
// data.validation_fraction holds photos back where there is no val; a photo's name is its path from
// `dir`. Files that are no JPEG or PNG by their name, and those that data.image_folder.exclude
// names, are left out; the remark counts them. Throws Error(kData) if there are no images for
// evaluation, if the classes of the sets or of data.class_names differ, if a class has no image, or
// if two folders differ in upper and lower case alone; the error names the class.
//
// A sample's file is read and decoded when the sample is used. A file that cannot be decoded throws
// Error(kData) that names it.
Datasets OpenImageFolder(const config::Data& data, uint64_t seed);
// The same of one set alone: the test set, or else the validation set. All images of a folder
// without train, val and test are a test set, if validation_fraction is 0.
Datasets OpenImageFolderTest(const config::Data& data, uint64_t seed);

// Photos of no data set; their labels are 0.
struct LoosePhotos {
  std::shared_ptr<const Dataset> set;
  std::vector<std::string> paths;  // of its samples
  // Why a sample that has been loaded could not be read or decoded, so that it is black; or "".
  std::shared_ptr<const std::vector<std::string>> troubles;
};
// `paths`: of files, whatever their names, and of folders, in each of which all JPEG and PNG files
// are taken, by path. Throws Error(kData) for a folder without any.
LoosePhotos OpenLoosePhotos(const std::vector<std::string>& paths, const config::Data& data);

}  // namespace muster
