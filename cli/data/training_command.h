// The command that trains on a folder of photos, as `muster data check` suggests it.
#pragma once

#include <string>
#include <vector>

#include "cli/data/check_photos.h"

namespace muster {

// Lines of at most 80 columns to type, if names are short. `exclude`: the list of images to leave
// out, or "". Fine-tunes ResNet-18: with few photos only its last layer, with small batches, so
// that an epoch has several steps, and with class weights if a class is much rarer than another.
std::vector<std::string> TrainingCommand(const PhotoReport& report, const std::string& exclude);

}  // namespace muster
