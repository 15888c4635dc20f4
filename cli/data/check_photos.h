// What is wrong with a folder of photos (data.format IMAGE_FOLDER).
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
  kSuspicious,  // training would work, but its results would mislead
  kWrong,       // training would stop
};

struct PhotoIssueKind {
  PhotoGrade grade;
  const char* name;     // in JSON
  const char* heading;  // for people
};

// The worst first.
inline constexpr std::array<PhotoIssueKind, 12> kPhotoIssues{{
    {PhotoGrade::kWrong, "layout", "folders are not as training needs them"},
    {PhotoGrade::kWrong, "damaged", "files that cannot be decoded"},
    {PhotoGrade::kWrong, "empty_classes", "classes without an image"},
    {PhotoGrade::kWrong, "missing_classes", "classes that only the other set has"},
    {PhotoGrade::kWrong, "spellings", "classes that differ in upper and lower case alone"},
    {PhotoGrade::kSuspicious, "duplicates_between_classes", "images that are in several classes"},
    {PhotoGrade::kSuspicious, "duplicates_between_sets", "images that are in both sets"},
    {PhotoGrade::kNote, "duplicates", "images that are several times in a class"},
    {PhotoGrade::kNote, "other_kind", "images of another kind than their name says"},
    {PhotoGrade::kNote, "warnings", "images that libjpeg warns of, with parts that may be wrong"},
    {PhotoGrade::kNote, "foreign", "files that are no JPEG or PNG by their name"},
    {PhotoGrade::kNote, "remarks", "remarks"},
}};

struct PhotoIssue {
  size_t kind = 0;                      // in kPhotoIssues
  std::vector<std::string> paths = {};  // relative to the folder; of copies the first is to be kept
  std::string text = {};
};

struct PhotoReport {
  struct Set {
    std::string name;             // "train", "val"; "" where the classes' folders lie in `dir`
    std::vector<int64_t> images;  // of each class
    int64_t bytes = 0;
  };
  std::string dir;
  std::vector<std::string> classes;       // of all sets
  std::vector<Set> sets;                  // the training set is the first
  ImageSize smallest, median, largest;    // by area, of the images that can be decoded
  int64_t warnings = 0;                   // of libjpeg
  std::vector<PhotoIssue> issues;         // the worst first
  std::set<std::string> left_out_before;  // by the caller's list

  PhotoGrade grade() const;  // of the worst issue
};

// Reads and decodes all images on all cores. `exclude`: a list of images to leave out, or "". Calls
// `progress` about ten times a second, with how many of how many images are done. Throws
// Error(kData) if there are no classes, or a folder or the list cannot be read.
PhotoReport CheckPhotos(const std::string& dir, const std::string& exclude,
                        const std::function<void(int64_t done, int64_t images)>& progress);

}  // namespace muster
