#include "ps/tensorboard/graph_def.h"

namespace muster {
namespace {

constexpr const char* kImage = "data";

// -1: as many as there are in a batch.
void SetShape(const Shape& shape, tensorboard::Node& node) {
  tensorboard::Shape& output =
      *(*node.mutable_attr())["_output_shapes"].mutable_list()->add_shape();
  for (const int64_t size :
       {int64_t{-1}, int64_t{shape.height}, int64_t{shape.width}, int64_t{shape.channels}}) {
    output.add_dim()->set_size(size);
  }
}

}  // namespace

tensorboard::GraphDef GraphDefOf(const Graph& graph) {
  tensorboard::GraphDef def;
  tensorboard::Node& image = *def.add_node();
  image.set_name(kImage);
  image.set_op("Placeholder");
  SetShape(graph.input_shape(), image);
  for (size_t i = 0; i < graph.layers().size(); ++i) {
    const Layer& layer = graph.layers()[i];
    tensorboard::Node& node = *def.add_node();
    node.set_name(layer.name);
    node.set_op(layer.kind);
    for (const int input : layer.inputs) {
      node.add_input(input == Layer::kData ? kImage
                                           : graph.layers()[static_cast<size_t>(input)].name);
    }
    SetShape(layer.output_shape, node);
    for (const Variable& variable : graph.variables()) {
      if (variable.layer != static_cast<int>(i)) continue;
      node.add_input(variable.name);
      tensorboard::Node& leaf = *def.add_node();
      leaf.set_name(variable.name);
      leaf.set_op("Variable");
      (*leaf.mutable_attr())["shape"].set_s(variable.ShapeString());
      (*leaf.mutable_attr())["parameters"].set_i(static_cast<int64_t>(variable.count));
    }
  }
  return def;
}

}  // namespace muster
