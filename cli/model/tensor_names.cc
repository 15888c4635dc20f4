#include "cli/model/tensor_names.h"

#include <algorithm>
#include <sstream>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/read_text.h"

namespace muster {

TensorNames ReadTensorNames(const std::string& path) {
  std::istringstream file(ReadTextFile(path));
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
