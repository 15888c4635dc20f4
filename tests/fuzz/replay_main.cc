// fuzz_replay TARGET PATH ...: hands a target every input of these files and folders, which fuzzing
// has found before. A file NAME.inputs has an input in each line (scripts/fuzz_corpus.py says how);
// every other one is an input.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace {

namespace fs = std::filesystem;

std::map<std::string, Target>& Targets() {
  static std::map<std::string, Target> targets;
  return targets;
}

[[noreturn]] void Refuse(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

int DigitOf(char hex) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return static_cast<int>(kDigits.find(hex));  // -1 if it is not a digit
}

// Decodes the text between the outer quotes of a line. Returns false if it is not an input.
bool Unquote(std::string_view line, std::vector<uint8_t>& input) {
  input.clear();
  const size_t begin = line.find('"');
  if (begin == line.npos || line.size() < begin + 2 || line.back() != '"') return false;
  if (begin != 0 && line[begin - 1] != '=') return false;
  for (line = line.substr(begin + 1, line.size() - begin - 2); !line.empty();) {
    size_t taken = 1;
    char byte = line[0];
    if (byte == '"') return false;
    if (byte == '\\') {
      if (line.size() < 2) return false;
      taken = 2;
      byte = line[1];
    }
    if (taken == 2 && byte == 'x') {
      if (line.size() < 4 || DigitOf(line[2]) < 0 || DigitOf(line[3]) < 0) return false;
      taken = 4;
      byte = static_cast<char>(DigitOf(line[2]) * 16 + DigitOf(line[3]));
    }
    input.push_back(static_cast<uint8_t>(byte));
    line.remove_prefix(taken);
  }
  return true;
}

// The buffer has exactly this size, so that a sanitizer notices reads beyond it.
void Play(Target target, const std::string& name, const std::vector<uint8_t>& input) {
  std::fprintf(stderr, "%s\n", name.c_str());  // the last name printed is the failing input
  (void)target(std::vector<uint8_t>(input).data(), input.size());
}

// Returns the number of inputs.
size_t PlayLines(Target target, const fs::path& path) {
  std::ifstream file(path);
  size_t number = 0;
  std::vector<uint8_t> input;
  for (std::string line; std::getline(file, line);) {
    const std::string place = path.string() + ":" + std::to_string(++number);
    if (!Unquote(line, input)) Refuse(place + ": expected \"INPUT\" or NAME=\"INPUT\": " + line);
    Play(target, place, input);
  }
  return number;
}

size_t PlayFile(Target target, const fs::path& path) {
  if (path.extension() == ".inputs") return PlayLines(target, path);
  std::ifstream file(path, std::ios::binary);
  Play(target, path, std::vector<uint8_t>{std::istreambuf_iterator<char>(file), {}});
  return 1;
}

int Replay(Target target, const std::vector<fs::path>& places) {
  std::vector<fs::path> files;
  for (const fs::path& place : places) {
    if (fs::is_regular_file(place)) files.push_back(place);
    if (!fs::is_directory(place)) continue;
    for (const fs::directory_entry& entry : fs::directory_iterator(place)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
  }
  std::ranges::sort(files);
  size_t inputs = 0;
  for (const fs::path& file : files) inputs += PlayFile(target, file);
  if (inputs == 0) Refuse("expected files or folders of inputs, got none with an input in it");
  std::fprintf(stderr, "%zu inputs\n", inputs);
  return 0;
}

}  // namespace

RegisteredTarget::RegisteredTarget(const char* name, Target target) { Targets()[name] = target; }

}  // namespace muster::fuzz

int main(int argc, char** argv) {
  using namespace muster::fuzz;
  const auto found = Targets().find(argc > 1 ? argv[1] : "");
  if (found == Targets().end()) Refuse("expected the name of a target and its inputs");
  return Replay(found->second, {argv + 2, argv + argc});
}
