#include "worker/data/photo_listing.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/resource_limits.h"
#include "common/base/text.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return text;
}

bool IsPhoto(const std::string& path) {
  constexpr std::array<std::string_view, 6> kExtensions = {".jpg",  ".jpeg", ".jpe",
                                                           ".jfif", ".png",  ".apng"};
  return std::ranges::find(kExtensions, ExtensionOf(path)) != kExtensions.end();
}

// Lists class folders. Follows links, except to a folder that they lie in.
class Lister {
 public:
  Lister(const std::string& dir, const std::string& folder, Exclusions& exclusions,
         PhotoListing& listing)
      : folder_(folder),
        in_dir_(folder_.lexically_relative(dir)),
        exclusions_(exclusions),
        listing_(listing) {
    for (const std::string& outer : {dir, folder}) {
      struct stat status {};
      if (::stat(outer.c_str(), &status) == 0) inside_.emplace_back(status.st_dev, status.st_ino);
    }
  }

  // `path`, relative to the folder, is the class or lies in it.
  void List(const fs::path& path, int32_t label) {
    struct stat status {};
    if (::stat((folder_ / path).c_str(), &status) != 0) {
      if (errno != ENOENT) AddBroken(path, -1, "cannot be read: " + ErrorText(errno));
      return;
    }
    const std::pair identity(status.st_dev, status.st_ino);
    if (std::ranges::find(inside_, identity) != inside_.end()) {
      AddBroken(path, -1, "a symbolic link to a folder that it lies in");
      return;
    }
    inside_.push_back(identity);
    std::error_code error;
    fs::directory_iterator entry(folder_ / path, error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
      const fs::path name = entry->path().filename();
      if (!name.native().starts_with('.')) Add(*entry, path / name, label);
    }
    if (error) AddBroken(path, -1, "cannot be read: " + error.message());
    inside_.pop_back();
  }

 private:
  void Add(const fs::directory_entry& entry, const fs::path& path, int32_t label) {
    std::error_code error;
    const fs::file_type type = entry.status(error).type();
    if (type == fs::file_type::directory) return List(path, label);
    if (type == fs::file_type::not_found) {
      if (IsPhoto(path)) AddBroken(path, label, "broken symbolic link");
      return;
    }
    if (type != fs::file_type::regular && type != fs::file_type::none) return;
    if (type == fs::file_type::regular && !IsPhoto(path)) {
      listing_.others.push_back(InDir(path));
      return;
    }
    const uintmax_t bytes = error ? 0 : entry.file_size(error);
    if (error) {
      return AddBroken(path, IsPhoto(path) ? label : -1, "cannot be read: " + error.message());
    }
    if (exclusions_.Has(InDir(path))) return;
    listing_.photos.push_back({.path = path, .bytes = static_cast<int64_t>(bytes), .label = label});
  }
  void AddBroken(const fs::path& path, int32_t label, std::string why) {
    if (exclusions_.Has(InDir(path))) return;
    listing_.broken.push_back({.path = InDir(path), .label = label, .why = std::move(why)});
  }
  std::string InDir(const fs::path& path) const { return (in_dir_ / path).lexically_normal(); }

  const fs::path folder_, in_dir_;
  Exclusions& exclusions_;
  PhotoListing& listing_;
  std::vector<std::pair<dev_t, ino_t>> inside_;  // the folders from `dir` to here
};

}  // namespace

Exclusions::Exclusions(const std::string& file) : file_(file) {
  if (file.empty()) return;
  std::ifstream lines = ReadPlainFile(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty() && line[0] != '#') paths_[fs::path(line).lexically_normal()] = false;
  }
  if (!lines.eof()) {
    throw Error(ExitCode::kData, "data.image_folder.exclude: {}: cannot be read: {}", file,
                ErrorText(errno));
  }
}

bool Exclusions::Has(const std::string& path) {
  const auto found = paths_.find(path);
  if (found == paths_.end()) return false;
  found->second = true;
  return true;
}

std::string Exclusions::Remark() const {
  const auto used = std::ranges::count_if(paths_, [](const auto& one) { return one.second; });
  const auto unused = std::ranges::find_if(paths_, [](const auto& one) { return !one.second; });
  std::string remark;
  if (used > 0) remark = fmt::format("images excluded by {}: {}", file_, FormatCount(used));
  if (unused != paths_.end()) {
    remark += fmt::format("{}lines of {} that match no image: {}, for example {}",
                          remark.empty() ? "" : "; ", file_, FormatCount(std::ssize(paths_) - used),
                          unused->first);
  }
  return remark;
}

PhotoListing ListPhotos(const std::string& dir, const std::string& folder,
                        const std::vector<std::string>& classes, Exclusions& exclusions) {
  PhotoListing listing;
  Lister lister(dir, folder, exclusions, listing);
  for (size_t label = 0; label < classes.size(); ++label) {
    const size_t before = listing.photos.size();
    lister.List(classes[label], static_cast<int32_t>(label));
    std::sort(listing.photos.begin() + static_cast<int64_t>(before), listing.photos.end(),
              [](const Photo& a, const Photo& b) { return a.path < b.path; });
  }
  std::ranges::sort(listing.broken, {}, &PhotoListing::Broken::path);
  std::ranges::sort(listing.others);
  return listing;
}

void RequireNoBroken(const std::string& dir, const PhotoListing& listing) {
  if (listing.broken.empty()) return;
  const PhotoListing::Broken& first = listing.broken[0];
  throw Error(ExitCode::kData, "{}: {}", (fs::path(dir) / first.path).string(), first.why);
}

std::vector<std::pair<std::string, std::string>> TwoSpellings(
    const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, std::string>> lower, found;
  lower.reserve(names.size());
  for (const std::string& name : names) lower.emplace_back(Lower(name), name);
  std::ranges::sort(lower);
  for (size_t i = 1; i < lower.size(); ++i) {
    if (lower[i].first == lower[i - 1].first) {
      found.emplace_back(lower[i - 1].second, lower[i].second);
    }
  }
  return found;
}

std::string ExtensionOf(const std::string& path) { return Lower(fs::path(path).extension()); }

}  // namespace muster
