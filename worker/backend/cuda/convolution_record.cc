#include "worker/backend/cuda/convolution_record.h"

#include <fmt/core.h>

#include <cstdint>
#include <utility>

namespace muster::cuda {

std::string ConvolutionRecord::Line() const {
  if (ways_.empty()) return "";
  std::map<std::string, int> counts;  // keys such as "forward cudnn 1"
  uint64_t hash = 0xcbf29ce484222325;
  for (const auto& [key, way] : ways_) {
    ++counts[fmt::format("{} {}", key.substr(0, key.find(' ')), way)];
    for (const char c : key + ": " + way + "\n") {
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    }
  }
  std::string text;
  for (const auto& [what, count] : counts) {
    text += fmt::format("{}{} x{}", text.empty() ? "" : ", ", what, count);
  }
  return fmt::format("convolutions: {} ({:016x})", text, hash);
}

}  // namespace muster::cuda
