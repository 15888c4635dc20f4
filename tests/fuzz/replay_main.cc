// Hands a target every file of the folders that it is given: what fuzzing has found, once more.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "tests/fuzz/fuzz.h"

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  std::vector<fs::path> inputs;
  for (int i = 1; i < argc; ++i) {
    if (fs::is_regular_file(argv[i])) inputs.emplace_back(argv[i]);
    if (!fs::is_directory(argv[i])) continue;
    for (const fs::directory_entry& entry : fs::directory_iterator(argv[i])) {
      if (entry.is_regular_file()) inputs.push_back(entry.path());
    }
  }
  std::ranges::sort(inputs);
  for (const fs::path& path : inputs) {
    std::fprintf(stderr, "%s\n", path.c_str());  // the last one is the one that failed
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    // A copy of just this size: what reads beyond it, a sanitizer sees.
    (void)LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  }
  if (inputs.empty()) {
    std::fprintf(stderr, "expected folders of inputs, got none with a file in it\n");
    return 1;
  }
  std::fprintf(stderr, "%zu inputs\n", inputs.size());
  return 0;
}
