#include "launch/data/existing_set.h"

#include "worker/data/cifar10.h"

namespace muster {
namespace fs = std::filesystem;

std::optional<fs::path> FindExistingSet(const std::string& dir) {
  const fs::path found = FindCifar10(dir);
  if (found != fs::path(dir)) {
    if (fs::is_directory(found) && fs::is_empty(found)) return std::nullopt;
    return found;
  }
  if (fs::exists(found / kCifar10TrainFiles[0]) || fs::exists(found / kCifar10TestFile)) {
    return found;
  }
  return std::nullopt;
}

}  // namespace muster
