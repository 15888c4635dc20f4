#include "cli/data/check_photos.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <filesystem>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>

#include "common/base/error.h"
#include "common/base/resource_limits.h"
#include "common/base/running_hash.h"
#include "common/base/text.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "worker/data/photo_listing.h"
#include "worker/data/photo_loader.h"
#include "worker/image/decode.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

consteval size_t KindNamed(std::string_view name) {
  size_t kind = 0;
  while (kPhotoIssues[kind].name != name) ++kind;
  return kind;
}

struct Checked {
  std::string path;  // relative to the folder
  size_t set = 0;
  int32_t label = 0;
  int64_t bytes = 0;
  // The following are set by Decoder.
  uint64_t hash = 0;
  ImageSize size;  // empty if the image is damaged
  ImageKind kind = ImageKind::kJpeg;
  int64_t warnings = 0;
  std::string text;  // why it is damaged, or the first warning
};

// Checks single photos. Owns the buffers of one thread.
class Decoder {
 public:
  void Check(const std::string& dir, Checked& photo) {
    const std::string path = dir + "/" + photo.path;
    try {
      ReadPhotoFile(path, file_);
    } catch (const Error& error) {
      photo.text = error.what();
      if (photo.text.starts_with(path + ": ")) photo.text.erase(0, path.size() + 2);
      return;
    }
    try {
      RunningHash hash;
      hash.Add(std::as_bytes(std::span(file_)));
      photo.hash = hash.value();
      const ImageInfo info = ReadImageInfo(file_);
      const ImageSize size = info.shown();
      // Decoding at reduced size still reads the whole file.
      DecodeWarnings warnings = Decode(
          file_, info, {.region = {.height = size.height, .width = size.width}, .reduction = 8},
          scratch_, image_);
      photo.size = size;
      photo.kind = info.kind;
      photo.warnings = warnings.count;
      photo.text = std::move(warnings.first);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kData) throw;
      photo.text = error.what();
    }
  }

 private:
  std::vector<uint8_t> file_;
  DecodeScratch scratch_;
  Image image_;
};

void CheckAll(const std::string& dir, std::vector<Checked>& photos,
              const std::function<void(int64_t done, int64_t images)>& progress) {
  std::atomic<size_t> next = 0;
  std::atomic<int64_t> done = 0;
  std::mutex mutex;
  std::exception_ptr failure;  // the first one; it ends the check
  const auto work = [&](const auto& after_each) {
    try {
      Decoder decoder;
      for (size_t i; (i = next++) < photos.size(); after_each()) {
        decoder.Check(dir, photos[i]);
        ++done;
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      next = photos.size();
    }
  };
  const size_t cores = std::min(static_cast<size_t>(AvailableCores()), photos.size());
  RequireThreads("muster data check", static_cast<unsigned>(cores));
  std::vector<std::jthread> others;
  others.reserve(cores);
  for (size_t i = 1; i < cores; ++i) {
    others.emplace_back([&] { work([] {}); });
  }
  auto shown = std::chrono::steady_clock::now();
  work([&] {
    const auto now = std::chrono::steady_clock::now();
    if (now - shown < std::chrono::milliseconds(100)) return;
    shown = now;
    progress(done, std::ssize(photos));
  });
  others.clear();  // joined
  if (failure) std::rethrow_exception(failure);
}

void AddLayoutIssues(const ImageFolders& found, PhotoReport& report) {
  const auto add = [&](std::vector<std::string> paths, const char* text) {
    report.issues.push_back({KindNamed("layout"), std::move(paths), text});
  };
  if (found.training.empty()) add({}, "there is no folder train");
  if (report.classes.size() == 1) {
    const bool too_high = !OnlyFolderOfClasses(found.training, report.classes).empty();
    add({report.classes[0]}, too_high ? "is the only class, and holds folders; check it instead"
                                      : "is the only class; expected at least two");
  }
  for (const std::string& name : report.classes) {
    if (ValidUtf8(name) != name) add({name}, "the name is not UTF-8");
  }
}

void AddClassIssues(const std::vector<std::vector<std::string>>& folders, PhotoReport& report) {
  for (size_t s = 0; s < folders.size(); ++s) {
    const PhotoReport::Set& set = report.sets[s];
    for (size_t c = 0; c < report.classes.size(); ++c) {
      const bool there = std::ranges::binary_search(folders[s], report.classes[c]);
      if (there && set.images[c] > 0) continue;
      report.issues.push_back({there ? KindNamed("empty_classes") : KindNamed("missing_classes"),
                               {fs::path(set.name) / report.classes[c]},
                               there ? "" : "there is no such folder"});
    }
  }
  for (const auto& [one, other] : TwoSpellings(report.classes)) {
    report.issues.push_back({KindNamed("spellings"), {one, other}, ""});
  }
}

void AddFileIssues(const std::vector<Checked>& photos, PhotoReport& report) {
  const auto add = [&](size_t kind, const Checked& photo, std::string text) {
    report.issues.push_back({kind, {photo.path}, std::move(text)});
  };
  for (const Checked& photo : photos) {
    if (photo.size == ImageSize()) {
      add(KindNamed("damaged"), photo, photo.text);
      continue;
    }
    const std::string extension = ExtensionOf(photo.path);
    const bool png = photo.kind == ImageKind::kPng;
    if (png != (extension == ".png" || extension == ".apng")) {
      add(KindNamed("other_kind"), photo, png ? "is a PNG" : "is a JPEG");
    }
    if (photo.warnings > 0) add(KindNamed("warnings"), photo, photo.text);
    report.warnings += photo.warnings;
  }
}

// Sorts the photos so that copies are adjacent, with those for evaluation first. The first copy is
// kept, so that excluding the others does not change the meaning of the accuracy.
void AddDuplicates(std::vector<Checked>& photos, PhotoReport& report) {
  const auto key = [](const Checked& photo) {
    return std::tuple(photo.hash, photo.bytes, photo.size == ImageSize());
  };
  std::ranges::sort(photos, [&](const Checked& a, const Checked& b) {
    return std::tuple(key(a), b.set, std::string_view(a.path)) <
           std::tuple(key(b), a.set, std::string_view(b.path));
  });
  for (auto first = photos.begin(); first != photos.end();) {
    const auto last = std::find_if(first, photos.end(),
                                   [&](const Checked& photo) { return key(photo) != key(*first); });
    const std::span<const Checked> copies(first, last);
    first = last;
    if (copies.size() == 1 || copies[0].size == ImageSize()) continue;
    const auto differ = [&](auto member) {
      return std::ranges::any_of(
          copies, [&](const Checked& photo) { return photo.*member != copies[0].*member; });
    };
    PhotoIssue issue{.kind = differ(&Checked::label) ? KindNamed("duplicates_between_classes")
                             : differ(&Checked::set) ? KindNamed("duplicates_between_sets")
                                                     : KindNamed("duplicates")};
    issue.paths.reserve(copies.size());
    for (const Checked& photo : copies) issue.paths.push_back(photo.path);
    report.issues.push_back(std::move(issue));
  }
}

void MeasureSizes(const std::vector<Checked>& photos, PhotoReport& report) {
  std::vector<ImageSize> sizes;
  sizes.reserve(photos.size());
  for (const Checked& photo : photos) {
    if (photo.size.height > 0) sizes.push_back(photo.size);
  }
  if (sizes.empty()) return;
  std::ranges::sort(sizes, {}, [](const ImageSize& size) {
    return std::pair(size.height * size.width, size.height);
  });
  report.smallest = sizes.front();
  report.median = sizes[sizes.size() / 2];
  report.largest = sizes.back();
}

}  // namespace

PhotoGrade PhotoReport::grade() const {
  return issues.empty() ? PhotoGrade::kNote : kPhotoIssues[issues[0].kind].grade;
}

PhotoReport CheckPhotos(const std::string& dir, const std::string& exclude,
                        const std::function<void(int64_t done, int64_t images)>& progress) {
  PhotoReport report{.dir = dir};
  const ImageFolders found = FindImageFolders(dir);
  std::vector<std::string> sets;
  for (const std::string& set : {found.training, found.validation, found.test}) {
    if (!set.empty()) sets.push_back(set);
  }
  std::vector<std::vector<std::string>> folders;
  std::set<std::string> classes;
  for (const std::string& set : sets) {
    folders.push_back(ClassFolders(set));
    classes.insert(folders.back().begin(), folders.back().end());
  }
  if (classes.empty()) {
    throw Error(ExitCode::kData, "{}: expected a folder of images for each class, found none", dir);
  }
  report.classes.assign(classes.begin(), classes.end());

  Exclusions exclusions(exclude);
  std::vector<Checked> photos;
  for (const std::string& folder : sets) {
    const fs::path in_dir = fs::path(folder).lexically_relative(dir);
    PhotoReport::Set set{.name = in_dir == "." ? "" : in_dir.string(),
                         .images = std::vector<int64_t>(classes.size())};
    PhotoListing listing = ListPhotos(dir, folder, report.classes, exclusions);
    for (const Photo& photo : listing.photos) {
      photos.push_back({.path = fs::path(set.name) / photo.path,
                        .set = report.sets.size(),
                        .label = photo.label,
                        .bytes = photo.bytes});
      ++set.images[static_cast<size_t>(photo.label)];
      set.bytes += photo.bytes;
    }
    for (PhotoListing::Broken& broken : listing.broken) {
      if (broken.label >= 0) ++set.images[static_cast<size_t>(broken.label)];
      report.issues.push_back(
          {KindNamed("damaged"), {std::move(broken.path)}, std::move(broken.why)});
    }
    for (std::string& other : listing.others) {
      report.issues.push_back({KindNamed("foreign"), {std::move(other)}, ""});
    }
    report.sets.push_back(std::move(set));
  }
  CheckAll(dir, photos, progress);

  AddLayoutIssues(found, report);
  AddClassIssues(folders, report);
  AddFileIssues(photos, report);
  AddDuplicates(photos, report);
  MeasureSizes(photos, report);
  const auto remark = [&](const std::string& text) {
    if (!text.empty()) report.issues.push_back({KindNamed("remarks"), {}, text});
  };
  remark(exclusions.Remark());
  report.needs_fraction = found.validation.empty() && found.test.empty();
  if (report.needs_fraction) {
    remark("there is no folder val; training needs data.validation_fraction");
  }
  for (const auto& [path, used] : exclusions.paths()) report.left_out_before.insert(path);
  std::ranges::sort(report.issues, {}, [](const PhotoIssue& issue) {
    return std::tie(issue.kind, issue.paths, issue.text);
  });
  return report;
}

}  // namespace muster
