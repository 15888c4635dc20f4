// An accepted network has consecutive variables in its parameter buffer and a PyTorch tensor for
// each. Printed and parsed again, it has the same hash.
#include <google/protobuf/text_format.h>

#include <set>

#include "common/config/text_format.h"
#include "common/model/torch_tensors.h"
#include "tests/fuzz/round_trip.h"

namespace muster::fuzz {
namespace fuzz_model_text {

constexpr Shape kImage{8, 8, 3};

void CheckLayout(const VariableLayout& layout) {
  size_t end = 0;
  for (const Variable& variable : layout.variables()) {
    Require(variable.offset >= end && variable.offset % VariableLayout::kAlignFloats == 0,
            "a variable overlaps another, or is not aligned");
    int64_t count = 1;
    for (const int64_t extent : variable.shape) count *= extent;
    Require(count > 0 && static_cast<size_t>(count) == variable.count,
            "a variable's count does not match its shape");
    end = variable.offset + variable.count;
  }
  Require(end <= layout.arena_floats(), "a variable exceeds the buffer");
}

// Feature permutations are tables with one entry per feature.
void CheckTensors(const Graph& graph) {
  if (graph.arena_floats() > 1 << 20) return;
  const TorchTensors torch(graph);
  std::set<std::string> names;
  for (const TorchTensor& tensor : torch.tensors()) {
    Require(names.insert(tensor.name()).second, "two tensors with the same name");
    Require(tensor.count() == graph.variables()[static_cast<size_t>(tensor.variable())].count,
            "a tensor's size differs from its variable");
  }
  Require(names.size() == graph.variables().size(), "a variable has no tensor");
}

std::string Print(const config::Model& model) {
  std::string printed;
  Require(google::protobuf::TextFormat::PrintToString(model, &printed),
          "the model cannot be printed");
  return printed;
}

config::Model Read(const std::string& text, const std::string& name) {
  config::Model model;
  ParseText(text, name, "model", model);
  return model;
}

void Check(const std::string& text) {
  config::Model model;
  if (!OrError("net.txtpb", [&] { model = Read(text, "net.txtpb"); })) return;
  OrError("", [&] {
    const Graph graph = BuildGraph(model, kImage);
    CheckLayout(graph.layout());
    CheckTensors(graph);
    const config::Model again = ReadAgain<config::Model>(
        model, Print, [](const std::string& printed) { return Read(printed, "printed"); });
    RequireSameNetwork(graph, again, kImage);
  });
}

}  // namespace fuzz_model_text
}  // namespace muster::fuzz

FUZZ_TARGET(model_text) {
  muster::fuzz::SilenceLogs();
  muster::fuzz::fuzz_model_text::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}
