// Lists the images of an IMAGE_FOLDER except excluded ones.
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
  // `file` may be "". Throws Error(kData) if it cannot be read.
  explicit Exclusions(const std::string& file);

  // Whether an image is excluded. `path` is relative to data.dir.
  bool Has(const std::string& path);
  // Reports the number of excluded images and of lines that match no image. Returns "" if both are
  // 0.
  std::string Remark() const;
  // The listed paths, and whether Has was called for each.
  const std::map<std::string, bool>& paths() const { return paths_; }

 private:
  std::string file_;
  std::map<std::string, bool> paths_;
};

struct PhotoListing {
  // An image or a folder that cannot be read, or a symbolic link to nothing.
  struct Broken {
    std::string path;   // relative to dir
    int32_t label = 0;  // -1 for a folder
    std::string why;
  };
  std::vector<Photo> photos;        // by class, then by path
  std::vector<Broken> broken;       // by path
  std::vector<std::string> others;  // files without a JPEG or PNG extension
};

// Lists the files in the class folders below `folder`, which is `dir` or lies in it. A class may
// have no folder.
PhotoListing ListPhotos(const std::string& dir, const std::string& folder,
                        const std::vector<std::string>& classes, Exclusions& exclusions);

// Throws Error(kData) that names the first broken image or folder. `dir` is that of the listing.
void RequireNoBroken(const std::string& dir, const PhotoListing& listing);

// Returns the pairs of names that differ only in case, such as "cat" and "Cat".
std::vector<std::pair<std::string, std::string>> TwoSpellings(
    const std::vector<std::string>& names);

// Returns the extension in lower case, with the dot.
std::string ExtensionOf(const std::string& path);

}  // namespace muster
