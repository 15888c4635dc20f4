// `muster data check`.
#pragma once

#include <string>
#include <vector>

#include "cli/data/check_photos.h"

namespace muster {

struct CheckArguments {
  std::string dir, exclude, write_exclusions;
  bool json = false;
};

// Prints the report, and writes the list of images to exclude if requested. Returns the exit code.
int RunCheck(const CheckArguments& arguments);

std::vector<std::string> PhotoReportLines(const PhotoReport& report);
std::string PhotoReportJson(const PhotoReport& report);
// A list for data.image_folder.exclude: damaged files, all copies of an image except one, and what
// was excluded before. Throws Error(kData) for a name with a line break.
std::string ExclusionsText(const PhotoReport& report);

}  // namespace muster
