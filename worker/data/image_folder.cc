#include "worker/data/image_folder.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/random.h"
#include "common/base/running_hash.h"
#include "common/base/text.h"
#include "common/config/data_format.h"
#include "common/plan/slices.h"
#include "proto/config.pb.h"
#include "worker/data/photo_listing.h"
#include "worker/data/photo_loader.h"
#include "worker/data/validation_split.h"

namespace muster {
namespace {

void CheckSpelling(const std::string& folder, const std::vector<std::string>& names) {
  const auto pairs = TwoSpellings(names);
  if (pairs.empty()) return;
  throw Error(ExitCode::kData,
              "{}: expected one folder for each class, found \"{}\" and \"{}\": put their images "
              "into one of them",
              folder, pairs[0].first, pairs[0].second);
}

void CheckClasses(const std::string& folder, const std::vector<std::string>& found,
                  const config::Data& data) {
  CheckSpelling(folder, found);
  const std::vector<std::string> expected(data.class_names().begin(), data.class_names().end());
  std::vector<std::string> sorted = expected;
  std::ranges::sort(sorted);
  std::vector<std::string> missing, extra;
  std::ranges::set_difference(sorted, found, std::back_inserter(missing));
  std::ranges::set_difference(found, sorted, std::back_inserter(extra));
  if (missing.empty() && extra.empty()) return;
  throw Error(ExitCode::kData,
              "{}: expected a folder for each of the {} classes (data.class_names), found {}{}{}",
              folder, expected.size(), missing.empty() ? "" : "none for " + Join(missing, ", "),
              missing.empty() || extra.empty() ? "" : ", and ",
              extra.empty() ? "" : "others: " + Join(extra, ", "));
}

PhotoListing List(const std::string& folder, const config::Data& data, Exclusions& exclusions) {
  const std::vector<std::string> found = ClassFolders(folder);
  if (found.empty()) {
    throw Error(ExitCode::kData, "{}: expected a folder of images for each class, found none",
                folder);
  }
  CheckClasses(folder, found, data);
  const std::vector<std::string> classes(data.class_names().begin(), data.class_names().end());
  PhotoListing listing = ListPhotos(data.dir(), folder, classes, exclusions);
  RequireNoBroken(data.dir(), listing);
  std::vector<bool> has_images(classes.size());
  for (const Photo& photo : listing.photos) has_images[static_cast<size_t>(photo.label)] = true;
  if (const auto none = std::ranges::find(has_images, false); none != has_images.end()) {
    const std::string& name = classes[static_cast<size_t>(none - has_images.begin())];
    throw Error(ExitCode::kData,
                "{}/{}: expected at least one JPEG or PNG file of class \"{}\", found none", folder,
                name, name);
  }
  return listing;
}

// The photo's path relative to `dir`. `folder` is in it.
std::string NameIn(const std::string& dir, const std::string& folder, const Photo& photo) {
  return (std::filesystem::path(folder).lexically_relative(dir) / photo.path).lexically_normal();
}

class ImageFolder final : public Dataset {
 public:
  ImageFolder(std::string folder, std::vector<Photo> photos, const config::Data& data,
              std::shared_ptr<std::vector<std::string>> troubles = nullptr)
      : data_(data), files_{std::move(folder), std::move(photos), std::move(troubles)} {}

  int64_t size() const override { return static_cast<int64_t>(files_.photos.size()); }
  Shape shape() const override { return StoredShape(data_); }
  int64_t classes() const override { return data_.class_names_size(); }
  int32_t Label(int64_t index) const override {
    MUSTER_CHECK(0 <= index && index < size());
    return files_.photos[static_cast<size_t>(index)].label;
  }
  std::string FileOf(int64_t index) const override {
    return NameIn(data_.dir(), files_.folder, files_.photos[static_cast<size_t>(index)]);
  }
  std::span<const uint8_t> Planes(int64_t index, std::vector<uint8_t>& buffer) const override {
    return PhotoLoader(files_, data_).Planes(index, buffer);
  }
  bool stores_planes() const override { return false; }
  std::unique_ptr<SampleLoader> MakeLoader(const config::Data& data) const override {
    return std::make_unique<PhotoLoader>(files_, data);
  }

  size_t bytes() const override {
    size_t bytes = 0;
    for (const Photo& photo : files_.photos) bytes += sizeof(Photo) + photo.path.capacity();
    return bytes;
  }

  uint64_t Fingerprint() const override {
    std::call_once(fingerprint_once_, [this] {
      RunningHash hash;
      // The hash excludes contents, so that a run can continue after a damaged photo has been
      // repaired.
      for (const std::string& name : data_.class_names()) hash.Add(name + "\n");
      for (const Photo& photo : files_.photos) hash.Add(photo.path + "\n");
      fingerprint_ = hash.value();
    });
    return fingerprint_;
  }

  // All sizes are known already. To read all files would take as long as an epoch.
  uint64_t Contents() const override {
    std::call_once(contents_once_, [this] {
      constexpr int64_t kMostRead = 128;              // photos, spread evenly
      constexpr size_t kMostBytes = size_t{1} << 16;  // of each
      RunningHash hash;
      for (const Photo& photo : files_.photos) {
        hash.Add(std::as_bytes(std::span(&photo.bytes, 1)));
      }
      std::vector<uint8_t> bytes;
      const int64_t count = std::min(size(), kMostRead);
      for (int64_t i = 0; i < count; ++i) {
        const Photo& photo = files_.photos[static_cast<size_t>(EvenPart(size(), count, i).begin)];
        ReadPhotoFile((std::filesystem::path(files_.folder) / photo.path).string(), bytes,
                      kMostBytes);
        hash.Add(std::as_bytes(std::span(bytes)));
      }
      contents_ = hash.value();
    });
    return contents_;
  }

 private:
  const config::Data data_;
  const PhotoFiles files_;
  mutable std::once_flag fingerprint_once_, contents_once_;
  mutable uint64_t fingerprint_ = 0, contents_ = 0;
};

std::string RemarkOn(size_t others, const Exclusions& exclusions) {
  std::string remark = exclusions.Remark();
  if (others == 0) return remark;
  const std::string ignored = others == 1 ? "1 file that is not JPEG or PNG is ignored"
                                          : FormatCount(static_cast<int64_t>(others)) +
                                                " files that are not JPEG or PNG are ignored";
  return ignored + (remark.empty() ? "" : "; ") + remark;
}

// Removes the photos of the validation set from `photos` and returns them.
std::vector<Photo> TakeHeldBack(const std::string& folder, const config::Data& data, uint64_t seed,
                                std::vector<Photo>& photos) {
  const double fraction = data.validation_fraction();
  std::vector<bool> is_trained(static_cast<size_t>(data.class_names_size()));
  std::vector<Photo> training, held_back;
  for (Photo& photo : photos) {
    const bool held = IsHeldBack(NameIn(data.dir(), folder, photo), fraction, seed);
    if (!held) is_trained[static_cast<size_t>(photo.label)] = true;
    (held ? held_back : training).push_back(std::move(photo));
  }
  const auto none = std::ranges::find(is_trained, false);
  if (none != is_trained.end()) {
    throw Error(ExitCode::kData,
                "{}: expected a training image of every class, found none of \"{}\" with "
                "data.validation_fraction={}: add images, or change the fraction or run.seed",
                folder, data.class_names(static_cast<int>(none - is_trained.begin())), fraction);
  }
  if (held_back.empty()) {
    throw Error(
        ExitCode::kData,
        "{}: expected images for evaluation, found none among {} with data.validation_fraction={}",
        folder, training.size(), fraction);
  }
  photos = std::move(training);
  return held_back;
}

}  // namespace

Datasets OpenImageFolder(const config::Data& data, uint64_t seed) {
  const ImageFolders folders = FindImageFolders(data.dir());
  if (folders.training.empty()) {
    throw Error(ExitCode::kData, "{}: expected a folder train next to {}, found none", data.dir(),
                folders.validation.empty() ? folders.test : folders.validation);
  }
  Exclusions exclusions(data.image_folder().exclude());
  size_t others = 0;
  const auto list = [&](const std::string& folder) {
    PhotoListing listing = List(folder, data, exclusions);
    others += listing.others.size();
    return std::move(listing.photos);
  };
  std::vector<Photo> training = list(folders.training), validation, test;
  if (!folders.validation.empty()) validation = list(folders.validation);
  if (!folders.test.empty()) test = list(folders.test);
  std::string remark = RemarkOn(others, exclusions);
  std::string validation_folder = folders.validation;
  if (data.validation_fraction() > 0) {
    if (validation.empty()) {
      validation_folder = folders.training;
      validation = TakeHeldBack(folders.training, data, seed, training);
    } else {
      remark += fmt::format("{}data.validation_fraction has no effect because of {}",
                            remark.empty() ? "" : "; ", folders.validation);
    }
  }
  if (validation.empty() && test.empty()) {
    const bool flat = folders.training == data.dir();
    throw Error(ExitCode::kData,
                "{}: expected {} for evaluation, found none: {}, or hold back a part of the images "
                "with --set data.validation_fraction=0.1",
                data.dir(), flat ? "images" : "a folder val next to train with images",
                flat ? "move the classes into a folder train, and some of their images into val"
                     : "create one");
  }
  const auto set = [&](const std::string& folder, std::vector<Photo> photos) {
    return photos.empty() ? nullptr
                          : std::make_shared<ImageFolder>(folder, std::move(photos), data);
  };
  return {.train = set(folders.training, std::move(training)),
          .test = set(folders.test, std::move(test)),
          .validation = set(validation_folder, std::move(validation)),
          .remark = remark};
}

LoosePhotos OpenLoosePhotos(const std::vector<std::string>& paths, const config::Data& data) {
  std::vector<Photo> photos;
  Exclusions none("");
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(path, ignored)) {
      photos.push_back({.path = path});
      continue;
    }
    const PhotoListing listing = ListPhotos("", "", {path}, none);
    RequireNoBroken("", listing);
    if (listing.photos.empty()) {
      throw Error(ExitCode::kData, "{}: expected at least one JPEG or PNG file, found none", path);
    }
    photos.insert(photos.end(), listing.photos.begin(), listing.photos.end());
  }
  std::vector<std::string> found;
  found.reserve(photos.size());
  for (const Photo& photo : photos) found.push_back(photo.path);
  const auto troubles = std::make_shared<std::vector<std::string>>(found.size());
  return {.set = std::make_shared<ImageFolder>("", std::move(photos), data, troubles),
          .paths = std::move(found),
          .troubles = troubles};
}

Datasets OpenImageFolderTest(const config::Data& data, uint64_t seed) {
  const ImageFolders folders = FindImageFolders(data.dir());
  Exclusions exclusions(data.image_folder().exclude());
  const auto open = [&](const std::string& folder) {
    return std::make_shared<ImageFolder>(folder, List(folder, data, exclusions).photos, data);
  };
  if (!folders.test.empty()) return {.test = open(folders.test)};
  if (!folders.validation.empty()) return {.validation = open(folders.validation)};
  if (data.validation_fraction() == 0) return {.test = open(folders.training)};
  return {.validation = OpenImageFolder(data, seed).validation};
}

}  // namespace muster
