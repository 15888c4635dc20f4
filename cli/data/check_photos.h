// Checks a folder of photos (data.format IMAGE_FOLDER).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "worker/image/image.h"

namespace muster {

enum class PhotoGrade {
  kNote,
  kSuspicious,  // training would work, but its results would be misleading
  kWrong,       // training would stop
};

struct PhotoIssueKind {
  PhotoGrade grade;
  const char* name;     // name in JSON
  const char* heading;  // for the text report
};

// Sorted from worst to mildest.
inline constexpr std::array<PhotoIssueKind, 12> kPhotoIssues{{
    {PhotoGrade::kWrong, "layout", "folders that training cannot use"},
    {PhotoGrade::kWrong, "damaged", "files that cannot be read or decoded"},
    {PhotoGrade::kWrong, "empty_classes", "classes without an image"},
    {PhotoGrade::kWrong, "missing_classes", "classes missing from a set"},
    {PhotoGrade::kWrong, "spellings", "classes that differ only in upper and lower case"},
    {PhotoGrade::kSuspicious, "duplicates_between_classes", "images that are in several classes"},
    {PhotoGrade::kSuspicious, "duplicates_between_sets", "images that are in both sets"},
    {PhotoGrade::kNote, "duplicates", "images that occur several times in a class"},
    {PhotoGrade::kNote, "other_kind", "images whose type does not match their name"},
    {PhotoGrade::kNote, "warnings", "images with libjpeg warnings, parts of which may be wrong"},
    {PhotoGrade::kNote, "foreign", "files whose names are not those of JPEG or PNG files"},
    {PhotoGrade::kNote, "remarks", "remarks"},
}};

struct PhotoIssue {
  size_t kind = 0;  // index in kPhotoIssues
  std::vector<std::string> paths =
      {};  // relative to the folder; the first of several copies is kept
  std::string text = {};
};

struct PhotoReport {
  struct Set {
    std::string name;             // "train", "val"; "" if the class folders are directly in `dir`
    std::vector<int64_t> images;  // the number in each class
    int64_t bytes = 0;
  };
  std::string dir;
  std::vector<std::string> classes;       // classes of all sets
  std::vector<Set> sets;                  // the training set is the first
  ImageSize smallest, median, largest;    // by area, of the images that can be decoded
  int64_t warnings = 0;                   // number of warnings from libjpeg
  std::vector<PhotoIssue> issues;         // worst first
  std::set<std::string> left_out_before;  // excluded by the caller's list
  bool needs_fraction = false;  // data.validation_fraction, as there is no set to evaluate

  PhotoGrade grade() const;  // grade of the worst issue
};

// Reads and decodes all images on all cores. `exclude` is a list of images to exclude, or "". Calls
// `progress` about ten times per second. Throws Error(kData) if there are no classes, or if the
// folders of classes or the list cannot be read.
PhotoReport CheckPhotos(const std::string& dir, const std::string& exclude,
                        const std::function<void(int64_t done, int64_t images)>& progress);

}  // namespace muster
