#include "common/config/data_format.h"

#include <fstream>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/text.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

constexpr size_t kMostLetters = 200;
constexpr size_t kMostNames = 100;

struct Format {
  Shape (*shape)(const config::Data& data);
  int64_t (*classes)(const config::Data& data);
  std::vector<std::string> (*class_names)(const config::Data& data);
  const char* how_to_get;  // null: it has no files
};

Shape MnistShape(const config::Data& data) {
  return {data.mnist().image_height(), data.mnist().image_width(), 1};
}

Shape SyntheticShape(const config::Data& data) {
  const config::SyntheticData& made_up = data.synthetic();
  return {made_up.height(), made_up.width(), made_up.channels()};
}

std::vector<std::string> ReadNames(const std::string& path) {
  std::vector<std::string> names;
  std::ifstream file = ReadPlainFile(path);
  for (std::string line; names.size() < kMostNames && std::getline(file, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.size() > kMostLetters) return {};
    if (!line.empty()) names.push_back(ValidUtf8(line));
  }
  return names;
}

std::vector<std::string> Cifar10Names(const config::Data& data) {
  for (const char* folder : {"", "/cifar-10-batches-bin"}) {
    std::vector<std::string> names = ReadNames(data.dir() + folder + "/batches.meta.txt");
    if (!names.empty()) return names;
  }
  return {};
}

std::vector<std::string> Digits(const config::Data& /*data*/) {
  return {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
}

int64_t Ten(const config::Data& /*data*/) { return 10; }

const Format& FormatOf(const config::Data& data) {
  static const Format cifar10{[](const config::Data&) {
                                return Shape{32, 32, 3};
                              },
                              Ten, Cifar10Names,
                              "`muster data get cifar10 DIR` downloads CIFAR-10, `muster data "
                              "synth DIR` makes a procedural set"};
  static const Format mnist{MnistShape, Ten, Digits, "`muster data get mnist DIR` downloads MNIST"};
  static const Format synthetic{
      SyntheticShape,
      [](const config::Data& of) { return static_cast<int64_t>(of.synthetic().classes()); },
      [](const config::Data&) { return std::vector<std::string>(); }, nullptr};
  switch (data.format()) {
    case config::Data::CIFAR10:
      return cifar10;
    case config::Data::MNIST:
      return mnist;
    case config::Data::SYNTHETIC:
      return synthetic;
  }
  throw Error(ExitCode::kUsage, "data.format: unknown: {}", static_cast<int>(data.format()));
}

}  // namespace

Shape StoredShape(const config::Data& data) { return FormatOf(data).shape(data); }

Shape InputShape(const config::Data& data) {
  Shape shape = StoredShape(data);
  if (data.preprocess().has_crop_height()) {
    shape.height = data.preprocess().crop_height();
    shape.width = data.preprocess().crop_width();
  }
  return shape;
}

int64_t DataClasses(const config::Data& data) { return FormatOf(data).classes(data); }

bool NeedsFiles(const config::Data& data) { return FormatOf(data).how_to_get != nullptr; }

void RequireDataDir(const config::Data& data) {
  if (!NeedsFiles(data) || !data.dir().empty()) return;
  throw Error(ExitCode::kUsage,
              "data.dir: missing: give the data's directory with --data DIR ({}; data.format "
              "SYNTHETIC needs no files)",
              FormatOf(data).how_to_get);
}

void ResolveClassNames(config::Data& data) {
  if (data.class_names_size() > 0 || data.dir().empty()) return;
  const std::vector<std::string> names = FormatOf(data).class_names(data);
  if (static_cast<int64_t>(names.size()) != DataClasses(data)) return;
  for (const std::string& name : names) data.add_class_names(name);
}

}  // namespace muster
