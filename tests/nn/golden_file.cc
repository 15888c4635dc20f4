#include "tests/nn/golden_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <stdexcept>

#include "tests/base/paths.h"
#include "tests/nn/reference.h"

namespace muster {
namespace {

class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : path_(path), in_(path) {}

  std::vector<GoldenCase> Run() {
    std::vector<GoldenCase> cases;
    std::string word;
    while (in_ >> word) {
      if (word[0] == '#') {
        Rest();
      } else if (word == "case") {
        cases.push_back(ReadCase(Rest()));
      } else {
        Fail("expected a case, got " + word);
      }
    }
    if (cases.empty()) Fail("no cases");
    return cases;
  }

 private:
  [[noreturn]] void Fail(const std::string& what) const {
    throw std::runtime_error(fmt::format("{}: case {}: {}", path_.string(), name_, what));
  }

  std::string Rest() {
    std::string line;
    std::getline(in_ >> std::ws, line);
    return line;
  }

  GoldenCase ReadCase(const std::string& name) {
    name_ = name;
    GoldenCase c;
    c.file = path_.filename().string();
    c.name = name;
    std::string key;
    while (in_ >> key && key != "end") {
      if (key == "layer") {
        c.settings = Rest();
      } else if (key == "mode") {
        const std::string mode = Rest();
        if (mode != "training" && mode != "inference") Fail("unknown mode " + mode);
        c.mode = mode == "training" ? Mode::kTraining : Mode::kInference;
      } else if (key == "batch") {
        in_ >> c.batch;
      } else if (key == "input") {
        Shape shape;
        in_ >> shape.height >> shape.width >> shape.channels;
        c.inputs.push_back(shape);
      } else if (key == "tensor") {
        std::string tensor;
        size_t count = 0;
        in_ >> tensor >> count;
        std::vector<float>& values = c.tensors[tensor];
        values.resize(count);
        for (float& value : values) in_ >> value;
      } else {
        Fail("unknown key " + key);
      }
      if (!in_) Fail("cut short or not a number after " + key);
    }
    if (key != "end") Fail("no end");
    return c;
  }

  const std::filesystem::path path_;
  std::ifstream in_;
  std::string name_ = "(none)";
};

// The source tree's folder, unless the program was copied to a machine without it.
std::string GoldenFolder() {
  const char* const carried = std::getenv("MUSTER_GOLDEN_DIR");
  return carried != nullptr ? carried : SourcePath("tests/nn/golden");
}

std::vector<GoldenCase> ReadAll(const std::string& folder) {
  std::vector<GoldenCase> cases;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry);
  std::sort(paths.begin(), paths.end());
  for (const auto& path : paths) {
    for (GoldenCase& c : Reader(path).Run()) cases.push_back(std::move(c));
  }
  return cases;
}

}  // namespace

const std::vector<float>& GoldenCase::At(const std::string& tensor) const {
  const auto found = tensors.find(tensor);
  if (found == tensors.end()) {
    throw std::runtime_error(fmt::format("{}: case {}: no tensor {}", file, name, tensor));
  }
  return found->second;
}

std::string GoldenCase::InputName(const std::string& stem, size_t index) const {
  return inputs.size() == 1 ? stem : stem + std::to_string(index);
}

Layer GoldenCase::MakeLayer() const { return reference::MakeLayer(settings, inputs); }

void PrintTo(const GoldenCase& c, std::ostream* out) { *out << c.file << ", " << c.name; }

const std::vector<GoldenCase>& GoldenCases() {
  static const std::vector<GoldenCase> cases = ReadAll(GoldenFolder());
  return cases;
}

}  // namespace muster
