#include "worker/client/describe_layout.h"

namespace muster {

void DescribeLayout(const VariableLayout& layout, wire::Hello& hello) {
  hello.set_graph_hash(layout.hash());
  for (const Variable& variable : layout.variables()) {
    wire::VariableShape& entry = *hello.add_variable();
    entry.set_name(variable.name);
    for (const int64_t n : variable.shape) entry.add_shape(n);
  }
  for (const std::string& line : layout.description()) hello.add_layer(line);
}

void TrimHello(wire::Hello& hello) {
  constexpr size_t kMostBytes = 256 << 10;
  if (hello.ByteSizeLong() > kMostBytes) hello.clear_layer();
  if (hello.ByteSizeLong() > kMostBytes) hello.clear_variable();
}

}  // namespace muster
