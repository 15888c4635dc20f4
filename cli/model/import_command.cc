#include "cli/model/import_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <sstream>

#include "cli/model/model_source.h"
#include "cli/text/units.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/memory.h"
#include "common/base/text.h"
#include "common/config/build_graph.h"
#include "common/config/data_format.h"
#include "common/model/load_weights.h"
#include "common/model/write_model.h"
#include "proto/config.pb.h"

namespace muster {

TensorNames ReadTensorNames(const std::string& path) {
  std::istringstream file(ReadTextFile(path));
  TensorNames names;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    line.resize(std::min(line.find('#'), line.size()));
    std::istringstream words(line);
    std::string theirs, ours, more;
    if (!(words >> theirs)) continue;
    if (!(words >> ours) || words >> more) {
      throw Error(ExitCode::kUsage,
                  "{}:{}: expected \"THEIRS OURS\" (or - to leave a variable out), got \"{}\"",
                  path, number, Shown(line));
    }
    if (!names.emplace(theirs, ours == "-" ? "" : ours).second) {
      throw Error(ExitCode::kUsage, "{}:{}: {} occurs twice", path, number, Shown(theirs));
    }
  }
  if (names.empty()) throw Error(ExitCode::kUsage, "{}: contains no names", path);
  return names;
}

std::vector<std::string> ImportModel(const ImportArguments& arguments) {
  CheckOutputFile(arguments.out, arguments.force);
  config::Config config = LoadConfig(arguments.config_path, arguments.settings);
  ResolveForMachine(config, AvailableCores());
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  LoadOptions options{.prefix = arguments.prefix, .skip_mismatched = arguments.skip_mismatched};
  if (!arguments.names.empty()) options.names = ReadTensorNames(arguments.names);
  const SafetensorsReader file(arguments.file);
  RequireWhole(file);
  Arena weights(graph.arena_floats());
  const WeightsMatch match = LoadWeights(file, graph, options, weights.floats());
  RequireFinite(arguments.file, graph, match, weights.floats(),
                "; training cannot remove them. To initialize these variables instead, use "
                "--skip-mismatched, and --map with a line \"NAME -\" for each");
  Metadata metadata = ModelMetadata(config, graph, {});
  metadata.erase("weights_hash");  // it would cover all variables
  metadata["imported_from"] = arguments.file;
  WriteModel(arguments.out, graph, weights.floats(), /*updates=*/0, std::move(metadata),
             &match.variables);
  const auto all = static_cast<int64_t>(graph.variables().size());
  std::vector<std::string> lines{fmt::format("{}: {} of {} from {}", arguments.out,
                                             match.variables.size(), Plural(all, "variable"),
                                             arguments.file)};
  for (const std::string& skipped : match.skipped) lines.push_back("  skipped: " + skipped);
  std::string train = "Train from it: muster launch " + ShellWord(arguments.config_path);
  for (const Setting& setting : arguments.settings) {
    train += " --set " + ShellWord(setting.path + "=" + setting.value);
  }
  train += " --initial-weights " + ShellWord(arguments.out);
  if (static_cast<int64_t>(match.variables.size()) < all) train += " --skip-mismatched";
  lines.push_back(std::move(train));
  return lines;
}

}  // namespace muster
