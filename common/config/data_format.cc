#include "common/config/data_format.h"

#include <strings.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/text.h"
#include "common/config/config.h"
#include "common/config/npz_sets.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostLetters = 200;
constexpr size_t kMostNames = 100;

void ResolveNames(config::Data& data);

struct Format {
  Shape (*shape)(const config::Data& data);
  int64_t (*classes)(const config::Data& data);  // 0: the number of names
  std::vector<std::string> (*class_names)(const config::Data& data);
  const char* how_to_get;  // null if the format has no files
  void (*resolve)(config::Data& data) = ResolveNames;
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

Shape PhotoShape(const config::Data& data) {
  const config::Preprocess& preprocess = data.preprocess();
  return {preprocess.crop_height(), preprocess.crop_width(), data.image_folder().channels()};
}

std::vector<std::string> FolderNames(const config::Data& data) {
  const ImageFolders folders = FindImageFolders(data.dir());
  const std::string& some = !folders.training.empty() ? folders.training
                            : !folders.test.empty()   ? folders.test
                                                      : folders.validation;
  std::vector<std::string> names = ClassFolders(some);
  for (const std::string& name : names) {
    if (ValidUtf8(name) == name) continue;
    throw Error(ExitCode::kData, "{}: the name of the class \"{}\" is not UTF-8: rename the folder",
                data.dir(), name);
  }
  if (names.size() == 1) {
    const std::string inner = OnlyFolderOfClasses(some, names);
    throw Error(ExitCode::kData,
                "{}: expected a folder for each of at least two classes, found only {}{}", some,
                names[0],
                inner.empty() ? "" : ", which holds folders: use --data " + ShellWord(inner));
  }
  return names;
}

int64_t Ten(const config::Data& /*data*/) { return 10; }

Shape NpzShape(const config::Data& data) {
  return {data.npz().height(), data.npz().width(), data.npz().channels()};
}

const Format& FormatOf(const config::Data& data) {
  static const Format cifar10{[](const config::Data&) {
                                return Shape{32, 32, 3};
                              },
                              Ten, Cifar10Names,
                              "`muster data get cifar10 DIR` downloads CIFAR-10, `muster data "
                              "synth DIR` makes a procedural set"};
  static const Format mnist{MnistShape, Ten, Digits, "`muster data get mnist DIR` downloads MNIST"};
  static const Format fashion_mnist{MnistShape, Ten, Digits,
                                    "`muster data get fashion-mnist DIR` downloads Fashion-MNIST"};
  static const Format synthetic{
      SyntheticShape,
      [](const config::Data& of) { return static_cast<int64_t>(of.synthetic().classes()); },
      [](const config::Data&) { return std::vector<std::string>(); }, nullptr};
  static const Format image_folder{
      PhotoShape, [](const config::Data&) { return int64_t{0}; }, FolderNames,
      "a folder of JPEG or PNG files for each class, in DIR/train and DIR/val or in DIR itself"};
  static const Format npz{NpzShape,
                          [](const config::Data& of) { return int64_t{of.npz().classes()}; },
                          [](const config::Data&) { return std::vector<std::string>(); },
                          "DIR/train.npz and DIR/test.npz, or one file, with arrays x and y as "
                          "numpy.savez writes them",
                          ResolveNpz};
  switch (data.format()) {
    case config::Data::IMAGE_FOLDER:
      return image_folder;
    case config::Data::CIFAR10:
      return cifar10;
    case config::Data::MNIST:
      return MnistSetOf(data) == MnistSet::kDigits ? mnist : fashion_mnist;
    case config::Data::SYNTHETIC:
      return synthetic;
    case config::Data::NPZ:
      return npz;
  }
  throw Error(ExitCode::kUsage, "data.format: unknown: {}", static_cast<int>(data.format()));
}

void ResolveNames(config::Data& data) {
  if (data.class_names_size() > 0) return;
  const std::vector<std::string> names = FormatOf(data).class_names(data);
  const int64_t classes = FormatOf(data).classes(data);
  if (classes > 0 && static_cast<int64_t>(names.size()) != classes) return;
  for (const std::string& name : names) data.add_class_names(name);
}

}  // namespace

MnistSet MnistSetOf(const config::Data& data) {
  const bool has_clothes = std::ranges::any_of(data.class_names(), [](const std::string& name) {
    return ::strcasecmp(name.c_str(), "Trouser") == 0 || ::strcasecmp(name.c_str(), "Sneaker") == 0;
  });
  return has_clothes ? MnistSet::kFashion : MnistSet::kDigits;
}

Shape StoredShape(const config::Data& data) { return FormatOf(data).shape(data); }

Shape InputShape(const config::Data& data) {
  Shape shape = StoredShape(data);
  if (data.preprocess().has_crop_height()) {
    shape.height = data.preprocess().crop_height();
    shape.width = data.preprocess().crop_width();
  }
  return shape;
}

int64_t DataClasses(const config::Data& data) {
  if (HasValues(data)) return 0;
  const int64_t classes = FormatOf(data).classes(data);
  return classes > 0 ? classes : data.class_names_size();
}

bool HasValues(const config::Data& data) {
  return data.format() == config::Data::NPZ && data.npz().has_classes() &&
         data.npz().classes() == 0;
}

const char* SampleNoun(const config::Config& config) {
  const config::NpzData& npz = config.data().npz();
  const bool are_rows =
      config.data().format() == config::Data::NPZ && npz.height() == 1 && npz.width() == 1;
  return HasProgram(config) || are_rows ? "sample" : "image";
}

std::vector<float> ClassWeights(const config::Data& data) {
  if (HasValues(data)) return {};
  return {data.class_weights().begin(), data.class_weights().end()};
}

std::vector<std::string> NamesOfClasses(const config::Data& data) {
  if (HasValues(data)) return {};
  return {data.class_names().begin(), data.class_names().end()};
}

double MixupAlpha(const config::Data& data) {
  return HasValues(data) ? 0 : data.preprocess().mixup_alpha();
}

bool NeedsFiles(const config::Data& data) { return FormatOf(data).how_to_get != nullptr; }

void RequireDataDir(const config::Data& data) {
  if (!NeedsFiles(data) || !data.dir().empty()) return;
  throw Error(ExitCode::kUsage,
              "data.dir: missing: give the data's directory with --data DIR ({}; data.format "
              "SYNTHETIC needs no files)",
              FormatOf(data).how_to_get);
}

void ResolveFromFiles(config::Data& data) {
  if (!data.dir().empty()) FormatOf(data).resolve(data);
}

bool MeasuresNormalization(const config::Data& data) {
  const config::Preprocess& preprocess = data.preprocess();
  return preprocess.measure_mean_stddev() && preprocess.mean_size() == 0 &&
         preprocess.stddev_size() == 0 &&
         (data.format() == config::Data::IMAGE_FOLDER || data.format() == config::Data::NPZ);
}

int64_t ShorterSide(const config::Preprocess& settings) {
  const bool by_default =
      settings.resize() == 0 && settings.training_crop() == config::Preprocess::RESIZED;
  return by_default ? std::max(settings.crop_height(), settings.crop_width()) * 8 / 7
                    : settings.resize();
}

ImageFolders FindImageFolders(const std::string& dir) {
  const std::vector<std::string> folders = ClassFolders(dir);
  const auto find = [&](std::initializer_list<const char*> names) {
    std::string found;
    for (const std::string& folder : folders) {
      const bool has_name = std::ranges::any_of(
          names, [&](const char* name) { return ::strcasecmp(folder.c_str(), name) == 0; });
      const std::string path = fs::path(dir) / folder;
      if (!has_name || ClassFolders(path).empty()) continue;
      if (!found.empty()) {
        throw Error(ExitCode::kData, "{} and {}: expected one of them, found both: rename one",
                    found, path);
      }
      found = path;
    }
    return found;
  };
  ImageFolders found{.training = find({"train", "training"}),
                     .validation = find({"val", "valid", "validation"}),
                     .test = find({"test", "testing"})};
  const bool none = found.training.empty() && found.validation.empty() && found.test.empty();
  if (none) found.training = dir;
  return found;
}

std::string OnlyFolderOfClasses(const std::string& folder, const std::vector<std::string>& names) {
  if (names.size() != 1) return "";
  std::string inner = fs::path(folder) / names[0];
  return ClassFolders(inner).empty() ? "" : inner;
}

std::vector<std::string> ClassFolders(const std::string& folder) {
  std::vector<std::string> names;
  try {
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename();
      std::error_code error;
      if (!name.starts_with('.') && entry.is_directory(error)) names.push_back(name);
      const bool leads_nowhere = error == std::errc::too_many_symbolic_link_levels ||
                                 error == std::errc::no_such_file_or_directory;
      if (!error || leads_nowhere) continue;
      throw fs::filesystem_error("", entry.path(), error);
    }
  } catch (const fs::filesystem_error& error) {
    throw Error(ExitCode::kData, "{}: cannot be read: {}",
                (error.path1().empty() ? fs::path(folder) : error.path1()).string(),
                error.code().message());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace muster
