#include "common/graph/variable_layout.h"

#include <xxhash.h>

#include <algorithm>
#include <iterator>

#include "common/base/text.h"

namespace muster {

std::string Variable::ShapeString() const { return "[" + Join(shape, ",") + "]"; }

VariableLayout::VariableLayout(std::vector<Variable> variables,
                               std::vector<std::string> description)
    : variables_(std::move(variables)), description_(std::move(description)) {
  for (const Variable& variable : variables_) {
    const size_t end = variable.offset + variable.count;
    arena_floats_ = (end + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
  }
  const std::string text = Join(description_, "\n");
  hash_ = XXH3_64bits(text.data(), text.size());
}

int64_t VariableLayout::parameter_count() const {
  size_t count = 0;
  for (const Variable& variable : variables_) {
    if (variable.kind != Variable::Kind::kStatistic) count += variable.count;
  }
  return static_cast<int64_t>(count);
}

const Variable& VariableLayout::VariableAt(size_t at) const {
  const auto after = std::upper_bound(
      variables_.begin(), variables_.end(), at,
      [](size_t offset, const Variable& variable) { return offset < variable.offset; });
  return *std::prev(after);
}

}  // namespace muster
