// Which files of an IMAGE_FOLDER are images, and which of them are left out.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "worker/data/photo_loader.h"

namespace muster {

// The lines of data.image_folder.exclude.
class Exclusions {
 public:
  // "" is no file. Throws Error(kData) if it cannot be read.
  explicit Exclusions(const std::string& file);

  // Whether an image is left out. `path` is relative to data.dir.
  bool Has(const std::string& path);
  // How many images are left out, and which lines name none. "" if there is nothing to say.
  std::string Remark() const;
  // Whether each path was asked for.
  const std::map<std::string, bool>& paths() const { return paths_; }

 private:
  std::string file_;
  std::map<std::string, bool> paths_;
};

struct PhotoListing {
  std::vector<Photo> photos;        // by class, then by path
  std::vector<std::string> others;  // files that are no JPEG or PNG by their name
};

// What lies in the folders of the classes below `folder`, which is `dir` or lies in it. A class may
// have no folder. Throws Error(kData) if one cannot be read.
PhotoListing ListPhotos(const std::string& dir, const std::string& folder,
                        const std::vector<std::string>& classes, Exclusions& exclusions);

// "cat" and "Cat" are one class that somebody spelled in two ways.
std::vector<std::pair<std::string, std::string>> TwoSpellings(
    const std::vector<std::string>& names);

// The extension in small letters, with the dot.
std::string ExtensionOf(const std::string& path);

}  // namespace muster
