#include "common/config/class_names.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "common/base/plain_file.h"
#include "common/base/utf8.h"
#include "common/config/config.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

constexpr size_t kMostLetters = 200;

std::vector<std::string> ReadNames(const std::string& path) {
  std::vector<std::string> names;
  std::ifstream file = ReadPlainFile(path);
  for (std::string line; names.size() < 100 && std::getline(file, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.size() > kMostLetters) return {};
    if (!line.empty()) names.push_back(ValidUtf8(line));
  }
  return names;
}

std::vector<std::string> KnownNames(const config::Data& data) {
  switch (data.format()) {
    case config::Data::MNIST:
      return {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
    case config::Data::CIFAR10:
      for (const char* folder : {"", "/cifar-10-batches-bin"}) {
        std::vector<std::string> names = ReadNames(data.dir() + folder + "/batches.meta.txt");
        if (!names.empty()) return names;
      }
      return {};
    default:
      return {};
  }
}

}  // namespace

void ResolveClassNames(config::Data& data) {
  if (data.class_names_size() > 0 || data.dir().empty()) return;
  const std::vector<std::string> names = KnownNames(data);
  if (static_cast<int64_t>(names.size()) != DataClasses(data)) return;
  for (const std::string& name : names) data.add_class_names(name);
}

}  // namespace muster
