#include "common/model/whole_file.h"

#include <fmt/core.h>

#include <optional>

#include "common/base/arena.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/model/hash_variables.h"
#include "common/model/load_weights.h"
#include "common/model/model_metadata.h"
#include "common/tensors/contents_hash.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

constexpr const char* kWeightsHash = "weights_hash";

// Of the variables as the network has them. Nothing if this version cannot tell.
std::optional<std::string> WeightsHashOf(const SafetensorsReader& file) {
  try {
    const auto config = ConfigOf(file.header().metadata, file.path());
    if (!config) return std::nullopt;
    const Graph graph = BuildGraph(config->model(), InputShape(config->data()));
    Arena weights(graph.arena_floats());
    (void)LoadWeights(file, graph, {}, weights.floats());
    return fmt::format("{:016x}", HashVariables(graph.layout(), weights.floats()));
  } catch (const Error&) {  // of another version; or it does not fit, and its reader says so
    return std::nullopt;
  }
}

}  // namespace

void RequireWhole(const SafetensorsReader& file) {
  const Metadata& metadata = file.header().metadata;
  const char* const key = metadata.contains(kContentsHash) ? kContentsHash : kWeightsHash;
  const auto expected = metadata.find(key);
  if (expected == metadata.end()) return;
  const std::optional<std::string> got =
      key == kContentsHash ? ContentsHashOf(file) : WeightsHashOf(file);
  if (!got || *got == expected->second) return;
  throw Error(
      ExitCode::kData,
      "{}: is damaged, or was changed: expected the {} {} that its metadata have, got {}; take "
      "another copy, or write it again with muster launch --resume RUN_DIR",
      file.path(), key, Printable(expected->second), *got);
}

std::string DamageOf(const std::string& path) {
  try {
    RequireWhole(SafetensorsReader(path));
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace muster
