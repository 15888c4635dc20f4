#include "worker/data/image_folder.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/random.h"
#include "common/base/running_hash.h"
#include "common/base/text.h"
#include "common/config/data_format.h"
#include "proto/config.pb.h"
#include "worker/data/photo_listing.h"
#include "worker/data/photo_loader.h"

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
  throw Error(ExitCode::kData, "{}: expected a folder for each of the {} classes, found {}{}{}",
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
      // A damaged photo that is mended has another size, and the run goes on.
      for (const std::string& name : data_.class_names()) hash.Add(name + "\n");
      for (const Photo& photo : files_.photos) hash.Add(photo.path + "\n");
      fingerprint_ = hash.value();
    });
    return fingerprint_;
  }

 private:
  const config::Data data_;
  const PhotoFiles files_;
  mutable std::once_flag fingerprint_once_;
  mutable uint64_t fingerprint_ = 0;
};

std::string RemarkOn(size_t others, const Exclusions& exclusions) {
  std::string remark = exclusions.Remark();
  if (others == 0) return remark;
  return fmt::format("{} files that are no JPEG or PNG are left out{}{}",
                     FormatCount(static_cast<int64_t>(others)), remark.empty() ? "" : "; ", remark);
}

// Whether a photo is one of the fraction, whatever other files there are.
bool IsHeldOut(const Photo& photo, double fraction, uint64_t seed) {
  RunningHash hash;
  hash.Add(std::as_bytes(std::span(&seed, 1)));
  hash.Add(std::as_bytes(std::span(photo.path)));
  return static_cast<double>(hash.value() >> 11) * 0x1p-53 < fraction;
}

// Holds out a fraction where there is no folder for evaluations.
Datasets Divide(const std::string& folder, PhotoListing listing, const std::string& remark,
                const config::Data& data, uint64_t seed) {
  const double fraction = data.validation_fraction();
  if (fraction == 0) {
    throw Error(ExitCode::kData,
                "{}: expected a folder val beside train, with images for evaluations, found none: "
                "make one, or set data.validation_fraction",
                data.dir());
  }
  std::vector<bool> is_trained(static_cast<size_t>(data.class_names_size()));
  std::vector<Photo> training, held_out;
  for (Photo& photo : listing.photos) {
    const bool held = IsHeldOut(photo, fraction, seed);
    if (!held) is_trained[static_cast<size_t>(photo.label)] = true;
    (held ? held_out : training).push_back(std::move(photo));
  }
  const auto none = std::ranges::find(is_trained, false);
  if (none != is_trained.end()) {
    throw Error(ExitCode::kData,
                "{}: expected an image of every class for training, found none of \"{}\" with "
                "data.validation_fraction={}: add images, or choose another fraction "
                "or run.seed",
                folder, data.class_names(static_cast<int>(none - is_trained.begin())), fraction);
  }
  if (held_out.empty()) {
    throw Error(ExitCode::kData,
                "{}: expected images for evaluations, found none among {} with "
                "data.validation_fraction={}",
                folder, training.size(), fraction);
  }
  return {.train = std::make_shared<ImageFolder>(folder, std::move(training), data),
          .test = std::make_shared<ImageFolder>(folder, std::move(held_out), data),
          .remark = remark};
}

}  // namespace

Datasets OpenImageFolder(const config::Data& data, uint64_t seed) {
  const ImageFolders folders = FindImageFolders(data.dir());
  if (folders.training.empty()) {
    throw Error(ExitCode::kData, "{}: expected a folder train beside {}, found none", data.dir(),
                folders.evaluation);
  }
  Exclusions exclusions(data.image_folder().exclude());
  PhotoListing training = List(folders.training, data, exclusions);
  if (folders.evaluation.empty()) {
    const std::string remark = RemarkOn(training.others.size(), exclusions);
    return Divide(folders.training, std::move(training), remark, data, seed);
  }
  PhotoListing evaluation = List(folders.evaluation, data, exclusions);
  std::string remark = RemarkOn(training.others.size() + evaluation.others.size(), exclusions);
  if (data.validation_fraction() > 0) {
    remark += fmt::format("{}data.validation_fraction has no effect beside {}",
                          remark.empty() ? "" : "; ", folders.evaluation);
  }
  return {
      .train = std::make_shared<ImageFolder>(folders.training, std::move(training.photos), data),
      .test = std::make_shared<ImageFolder>(folders.evaluation, std::move(evaluation.photos), data),
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

std::shared_ptr<const Dataset> OpenImageFolderTest(const config::Data& data, uint64_t seed) {
  const ImageFolders folders = FindImageFolders(data.dir());
  const bool all = data.validation_fraction() == 0;
  if (folders.evaluation.empty() && !all) return OpenImageFolder(data, seed).test;
  const std::string& folder = folders.evaluation.empty() ? folders.training : folders.evaluation;
  Exclusions exclusions(data.image_folder().exclude());
  return std::make_shared<ImageFolder>(folder, List(folder, data, exclusions).photos, data);
}

}  // namespace muster
