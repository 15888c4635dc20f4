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

// Prints the report, and writes the list of images to leave out if it is asked for. Returns the
// exit code.
int RunCheck(const CheckArguments& arguments);

std::vector<std::string> PhotoReportLines(const PhotoReport& report);
std::string PhotoReportJson(const PhotoReport& report);
// A list for data.image_folder.exclude: damaged files, all copies of an image but one, and what was
// left out before. Throws Error(kData) for a name that a line cannot hold.
std::string ExclusionsText(const PhotoReport& report);

}  // namespace muster
