#include "cli/model/float_blocks.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cli/text/units.h"
#include "common/base/log.h"

namespace muster {

void ForEachFloatBlock(const SafetensorsReader& model, const StoredTensor& tensor,
                       const std::function<void(std::span<const float>)>& visit) {
  constexpr uint64_t kBlock = 1 << 20;
  std::vector<float> values;
  for (uint64_t from = 0; from < tensor.elements(); from += kBlock) {
    values.resize(std::min(kBlock, tensor.elements() - from));
    model.ReadSomeFloats(tensor, from, values);
    visit(values);
  }
}

int64_t CountNonfinite(std::span<const float> values) {
  return std::ranges::count_if(values, [](float x) { return !std::isfinite(x); });
}

std::vector<std::string> NonfiniteTensors(const SafetensorsReader& model) {
  std::vector<std::string> texts;
  for (const StoredTensor& tensor : model.header().tensors) {
    if (!SafetensorsReader::IsFloat(tensor.type)) continue;
    int64_t count = 0;
    ForEachFloatBlock(model, tensor,
                      [&](std::span<const float> values) { count += CountNonfinite(values); });
    if (count > 0) texts.push_back(FormatCount(count) + " of " + Printable(tensor.name));
  }
  return texts;
}

}  // namespace muster
