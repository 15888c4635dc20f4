#include "cli/model/export_command.h"

#include <fmt/core.h>

#include <algorithm>

#include "cli/model/inspect_model.h"
#include "cli/model/model_source.h"
#include "cli/model/npz.h"
#include "cli/model/onnx.h"
#include "cli/text/console.h"
#include "cli/text/units.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "common/config/build_graph.h"
#include "common/config/data_format.h"
#include "common/model/model_metadata.h"
#include "common/tensors/safetensors_writer.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

void WriteSafetensors(const SafetensorsReader& model, const std::string& path) {
  SafetensorsWriter writer(path, model.header());
  constexpr uint64_t kBlock = 4 << 20;  // a tensor may not fit into memory
  std::vector<std::byte> bytes;
  for (const StoredTensor& tensor : writer.header().tensors) {
    for (uint64_t from = 0; from < tensor.bytes(); from += kBlock) {
      bytes.resize(std::min(kBlock, tensor.bytes() - from));
      model.ReadSomeBytes(*model.header().Find(tensor.name), from, bytes);
      writer.Write(bytes);
    }
  }
  writer.Commit();
}

Graph NetworkOf(const SafetensorsReader& model, const ExportArguments& arguments) {
  std::optional<config::Config> config;
  if (arguments.config_path.empty()) {
    config = ConfigOf(model.header().metadata, model.path());
  } else {
    config = LoadConfig(arguments.config_path, arguments.settings);
  }
  if (!config) {
    throw Error(ExitCode::kUsage,
                "{}: the file does not describe its network; give the config (--config CONFIG)",
                model.path());
  }
  return BuildGraph(config->model(), InputShape(config->data()));
}

// Warns of non-finite numbers, which readers of OUT do not expect.
void WarnOfNonfinite(const OpenedModel& opened, const std::string& out) {
  constexpr size_t kMostNamed = 10;
  std::vector<std::string> found = NonfiniteTensors(opened.file);
  if (found.empty()) return;
  if (found.size() > kMostNamed) {
    const size_t more = found.size() - kMostNamed;
    found.resize(kMostNamed);
    found.push_back(fmt::format("and {} more tensors", more));
  }
  PrintError(fmt::format("muster: warning: {} and {} contain numbers that are not finite: {}\n",
                         opened.shown, out, Join(found, ", ")));
}

}  // namespace

std::vector<std::string> ExportModel(const ExportArguments& arguments) {
  CheckOutputFile(arguments.out, arguments.force);
  const OpenedModel opened = OpenModel(arguments.from, arguments.choice);
  const SafetensorsReader& model = opened.file;
  if (arguments.format == "safetensors") {
    WriteSafetensors(model, arguments.out);
  } else if (arguments.format == "npz") {
    WriteNpz(model, arguments.out);
  } else if (arguments.format == "onnx") {
    WriteOnnx(model, NetworkOf(model, arguments), arguments.out);
  } else {
    throw Error(ExitCode::kUsage, "--format {}: expected safetensors, npz or onnx",
                arguments.format);
  }
  WarnOfNonfinite(opened, arguments.out);
  return {fmt::format("{}: {} of {}", arguments.out,
                      Plural(static_cast<int64_t>(model.header().tensors.size()), "tensor"),
                      DescribeModel(opened))};
}

}  // namespace muster
