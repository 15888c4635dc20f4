#include "worker/data/photo_listing.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string_view>

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
  const fs::path in_dir = fs::path(folder).lexically_relative(dir);
  for (size_t label = 0; label < classes.size(); ++label) {
    const fs::path top = fs::path(folder) / classes[label];
    const size_t before = listing.photos.size();
    try {
      if (!fs::exists(top)) continue;
      for (auto entry = fs::recursive_directory_iterator(
               top, fs::directory_options::follow_directory_symlink);
           entry != fs::recursive_directory_iterator(); ++entry) {
        if (entry->path().filename().native().starts_with('.')) {
          entry.disable_recursion_pending();
          continue;
        }
        const bool broken = entry->is_symlink() && !entry->exists();
        if (!entry->is_regular_file() && !(broken && IsPhoto(entry->path()))) continue;
        const fs::path path = classes[label] / entry->path().lexically_relative(top);
        const std::string path_in_dir = (in_dir / path).lexically_normal();
        if (!IsPhoto(path)) {
          listing.others.push_back(path_in_dir);
        } else if (exclusions.Has(path_in_dir)) {
          continue;
        } else if (broken) {
          listing.broken.push_back({.path = path_in_dir, .label = static_cast<int32_t>(label)});
        } else {
          listing.photos.push_back({.path = path,
                                    .bytes = static_cast<int64_t>(entry->file_size()),
                                    .label = static_cast<int32_t>(label)});
        }
      }
    } catch (const fs::filesystem_error& error) {
      throw Error(ExitCode::kData, "{}: cannot be read: {}",
                  (error.path1().empty() ? top : error.path1()).string(), error.code().message());
    }
    std::sort(listing.photos.begin() + static_cast<int64_t>(before), listing.photos.end(),
              [](const Photo& a, const Photo& b) { return a.path < b.path; });
  }
  std::ranges::sort(listing.others);
  return listing;
}

void RequireNoBroken(const std::string& dir, const PhotoListing& listing) {
  if (listing.broken.empty()) return;
  throw Error(ExitCode::kData, "{}: {}", (fs::path(dir) / listing.broken[0].path).string(),
              kBrokenLink);
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
