// The contents of a folder of photos, with any folders and links, are listed once and in order, or
// an error names the folder. Exactly what a list omits is missing. The input: the list, then
// entries of a byte for the kind, a name, and a link's target.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/config/data_format.h"
#include "proto/config.pb.h"
#include "tests/fuzz/fuzz.h"
#include "worker/data/image_folder.h"
#include "worker/data/photo_listing.h"

namespace muster::fuzz {
namespace fuzz_photo_folder {

namespace fs = std::filesystem;

constexpr int kMostEntries = 40;

// Returns "" for a name that would leave the folder.
fs::path Inside(const std::string& text) {
  const fs::path path = fs::path(text).lexically_normal().relative_path();
  return path.empty() || *path.begin() == ".." ? fs::path() : path;
}

void MakeEntries(Input& input, const fs::path& dir) {
  for (int i = 0; i < kMostEntries && !input.empty(); ++i) {
    const uint8_t kind = input.Byte();
    const fs::path name = Inside(input.Text());
    if (name.empty()) continue;
    std::error_code ignored;  // the name is too long or exists
    fs::create_directories((dir / name).parent_path(), ignored);
    switch (kind % 3) {
      case 0:
        fs::create_directories(dir / name, ignored);
        break;
      case 1:
        std::ofstream(dir / name) << "x";
        break;
      default:  // may form a cycle, but never leaves the folder
        fs::create_symlink(dir / Inside(input.Text()), dir / name, ignored);
    }
  }
}

void CheckListing(const std::string& dir, const std::string& folder, const std::string& list) {
  const std::vector<std::string> classes = ClassFolders(folder);
  Require(std::ranges::is_sorted(classes), "classes are out of order");
  Exclusions none(""), some(list);
  const PhotoListing all = ListPhotos(dir, folder, classes, none);
  const PhotoListing left = ListPhotos(dir, folder, classes, some);
  for (const PhotoListing& listing : {all, left}) {
    for (size_t i = 0; i < listing.photos.size(); ++i) {
      const Photo& photo = listing.photos[i];
      Require(fs::is_regular_file(fs::path(folder) / photo.path), "a file is missing");
      Require(photo.path.starts_with(classes.at(static_cast<size_t>(photo.label)) + "/"),
              "a photo has the wrong class");
      if (i == 0) continue;
      const Photo& before = listing.photos[i - 1];
      Require(
          before.label < photo.label || (before.label == photo.label && before.path < photo.path),
          "photos are duplicate or out of order");
    }
  }
  Require(all.others == left.others, "a list omitted files other than images");
  const auto used = std::ranges::count_if(some.paths(), [](const auto& one) { return one.second; });
  Require(all.photos.size() + all.broken.size() ==
              left.photos.size() + left.broken.size() + static_cast<size_t>(used),
          "omitted images are miscounted");
  (void)some.Remark();
}

void CheckDataset(const Dataset& set) {
  Require(set.size() > 0, "a set without images");
  for (int64_t i = 0; i < set.size(); ++i) {
    Require(set.Label(i) >= 0 && set.Label(i) < set.classes(), "a label out of range");
  }
  (void)set.Fingerprint();
}

config::Data DataOf(const std::string& dir, const std::string& list) {
  config::Data data;
  data.set_format(config::Data::IMAGE_FOLDER);
  data.set_dir(dir);
  data.set_validation_fraction(0.5);
  data.mutable_preprocess()->set_crop_height(2);
  data.mutable_preprocess()->set_crop_width(2);
  data.mutable_image_folder()->set_exclude(list);
  ResolveFromFiles(data);
  return data;
}

void CheckSets(const Datasets& sets) {
  for (const auto& set : {sets.train, sets.validation, sets.test}) {
    if (set != nullptr) CheckDataset(*set);
  }
}

}  // namespace fuzz_photo_folder
}  // namespace muster::fuzz

FUZZ_TARGET(photo_folder) {
  using namespace muster::fuzz;
  using namespace muster::fuzz::fuzz_photo_folder;
  SilenceLogs();
  Input input(data, size);
  static const Folder folder;
  folder.Clear();
  const std::string list = folder.Write("list", input.Text()), dir = folder / "photos";
  std::filesystem::create_directory(dir);
  MakeEntries(input, dir);
  OrError(dir, [&] {
    const muster::ImageFolders found = muster::FindImageFolders(dir);
    for (const std::string& one : {found.training, found.validation, found.test}) {
      if (!one.empty()) CheckListing(dir, one, list);
    }
  });
  OrError(dir, [&] {
    CheckSets(muster::OpenImageFolder(DataOf(dir, list), 1));
    CheckSets(muster::OpenImageFolderTest(DataOf(dir, list), 1));
  });
  return 0;
}
