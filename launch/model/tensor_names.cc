#include "launch/model/tensor_names.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "common/base/error.h"
#include "common/base/log.h"

namespace muster {

TensorNames ReadTensorNames(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw Error(ExitCode::kUsage, "{}: cannot be read: {}", path, std::strerror(errno));
  }
  TensorNames names;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    line.resize(std::min(line.find('#'), line.size()));
    std::istringstream words(line);
    std::string theirs, ours, more;
    if (!(words >> theirs)) continue;
    if (!(words >> ours) || words >> more) {
      throw Error(ExitCode::kUsage,
                  "{}:{}: expected two names, theirs and ours (or - to leave it out), got \"{}\"",
                  path, number, Printable(line));
    }
    if (!names.emplace(theirs, ours == "-" ? "" : ours).second) {
      throw Error(ExitCode::kUsage, "{}:{}: {} is there twice", path, number, Printable(theirs));
    }
  }
  if (names.empty()) throw Error(ExitCode::kUsage, "{}: has no names", path);
  return names;
}

}  // namespace muster
