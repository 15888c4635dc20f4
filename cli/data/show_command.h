// `muster data show`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/config.h"
#include "proto/config_fwd.h"
#include "worker/data/dataset.h"

namespace muster {

struct ShowArguments {
  std::string config_path;
  std::vector<Setting> settings;
  std::string output;
  int64_t samples = 8;
  int64_t epoch = 0;  // the first epoch shown
};

// Writes the first training samples of an epoch as a picture. Returns the exit code.
int RunShow(const ShowArguments& arguments);

// Returns the picture, as SVG: a row for each sample, with its image in an evaluation and in five
// epochs of training. The colors are those before applying data.preprocess.mean and stddev.
std::string ContactSheet(const Dataset& set, const config::Config& config, int64_t samples,
                         int64_t epoch);

// "data:image/png;base64,…": a file within the text of another one. `type` is its media type.
std::string DataUrl(const std::string& type, const std::string& bytes);

struct Thumbnail {
  std::string url;   // contains the picture
  std::string file;  // a photo's path relative to data.dir, or ""
};
// Returns small pictures of samples of the evaluated set.
std::vector<Thumbnail> Thumbnails(const config::Config& config, bool validation_set,
                                  const std::vector<int64_t>& samples);

}  // namespace muster
