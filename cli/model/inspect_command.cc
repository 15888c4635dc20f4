#include "cli/model/inspect_command.h"

#include <fmt/core.h>

#include <iterator>

#include "cli/text/size_text.h"
#include "cli/text/text_table.h"
#include "cli/text/units.h"
#include "common/config/build_graph.h"
#include "common/config/data_format.h"
#include "common/config/job_size.h"
#include "common/graph/graph.h"
#include "common/plan/chunks.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

constexpr double kFloatBytes = 4;

// The number of trained parameters, without running statistics.
int64_t Parameters(const Graph& graph, const Layer& layer) {
  int64_t count = 0;
  for (int index : {layer.weights, layer.bias, layer.scale, layer.shift}) {
    if (index >= 0)
      count += static_cast<int64_t>(graph.variables()[static_cast<size_t>(index)].count);
  }
  return count;
}

double ActivationBytes(const Layer& layer) {
  return kFloatBytes * static_cast<double>(layer.output_shape.elements());
}

TextTable LayerTable(const Graph& graph) {
  TextTable table({{"layer"},
                   {"kind", false, 3},
                   {"output shape"},
                   {"parameters", true},
                   {"forward", true, 1},
                   {"activations", true, 2}});
  double activations = 0;
  for (const Layer& layer : graph.layers()) {
    activations += ActivationBytes(layer);
    table.AddRow({layer.name, layer.kind, layer.output_shape.ToString(),
                  FormatCount(Parameters(graph, layer)), FormatFlops(layer.forward_flops),
                  FormatBytes(ActivationBytes(layer))});
  }
  table.AddRule();
  table.AddRow({"total", "", "", FormatCount(graph.layout().parameter_count()),
                FormatFlops(graph.forward_flops()), FormatBytes(activations)});
  return table;
}

// A remark for a variable with its own learning rate.
std::string LearnsText(float multiplier) {
  if (multiplier == 1) return "";
  return multiplier == 0 ? "frozen" : fmt::format("rate x {:g}", multiplier);
}

TextTable VariableTable(const Graph& graph) {
  TextTable table({{"variable"},
                   {"shape"},
                   {"parameters", true},
                   {"bytes", true, 4},
                   {"offset", true, 5},
                   {"initializer", false, 3},
                   {"weight decay", true, 2},
                   {"", false, 1}});
  for (const Variable& variable : graph.variables()) {
    table.AddRow({variable.name, variable.ShapeString(),
                  FormatCount(static_cast<int64_t>(variable.count)),
                  FormatBytes(kFloatBytes * static_cast<double>(variable.count)),
                  FormatCount(static_cast<int64_t>(4 * variable.offset)),
                  config::Initializer::Type_Name(
                      static_cast<config::Initializer::Type>(variable.initializer.kind)),
                  variable.weight_decay ? fmt::format("{:g}", *variable.weight_decay) : "-",
                  LearnsText(variable.learning_rate_multiplier)});
  }
  return table;
}

TextTable ChunkTable(const Graph& graph, const std::vector<Chunk>& chunks) {
  TextTable table({{"chunk", true}, {"bytes", true}, {"offset", true}, {"layers"}});
  for (size_t i = 0; i < chunks.size(); ++i) {
    const Chunk& chunk = chunks[i];
    const auto& layers = graph.layers();
    std::string names = layers[static_cast<size_t>(chunk.first_layer)].name;
    if (chunk.last_layer != chunk.first_layer) {
      names += " ... " + layers[static_cast<size_t>(chunk.last_layer)].name;
    }
    table.AddRow({FormatCount(static_cast<int64_t>(i)),
                  FormatBytes(kFloatBytes * static_cast<double>(chunk.floats())),
                  FormatCount(static_cast<int64_t>(4 * chunk.begin)), names});
  }
  return table;
}

void Append(std::vector<std::string>& lines, const TextTable& table, int width) {
  std::vector<std::string> more = table.Lines(width);
  lines.insert(lines.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
  lines.push_back("");
}

}  // namespace

std::vector<std::string> InspectLines(config::Config config, int width) {
  ResolveJobSize(config, AvailableCores());
  Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  std::vector<Chunk> chunks = CutChunks(graph.layout(), config.cluster());
  const std::string& name = config.model().name();
  std::vector<std::string> lines{
      fmt::format("{}input {}, {} classes; per sample, float32", name.empty() ? "" : name + ": ",
                  graph.input_shape().ToString(), graph.classes()),
      ""};
  Append(lines, LayerTable(graph), width);
  Append(lines, VariableTable(graph), width);
  Append(lines, ChunkTable(graph, chunks), width);

  double bytes = kFloatBytes * static_cast<double>(graph.arena_floats());
  auto row = [&](const char* label, const std::string& text) {
    lines.push_back(fmt::format("  {:<16} {}", label, text));
  };
  row("batch", BatchText(config));
  row("work per step",
      "about " +
          FormatFlops(3 * graph.forward_flops() *
                      static_cast<double>(ResolveBatch(config).global_batch)) +
          (config.model().freeze_size() == 0 ? " (forward, and twice as much backward)"
                                             : " (forward, and at most twice as much backward)"));
  row("traffic per step",
      fmt::format("{} pushed and {} pulled by each worker, in {}", FormatBytes(bytes),
                  FormatBytes(bytes), Plural(static_cast<int64_t>(chunks.size()), "chunk")));
  row("steps per epoch",
      NeedsFiles(config.data())
          ? fmt::format("unknown without the data: training {}s / global_batch, rounded up",
                        SampleNoun(config))
          : FormatCount(
                PlanSteps(config, config.data().synthetic().train_samples()).StepsPerEpoch()));
  row("graph hash", fmt::format("{:016x}", graph.layout().hash()));
  return lines;
}

}  // namespace muster
