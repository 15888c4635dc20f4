#include "common/model/load_weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "common/base/error.h"
#include "common/base/memory.h"
#include "common/base/text.h"
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/model/hash_variables.h"
#include "common/model/model_metadata.h"
#include "common/model/torch_tensors.h"
#include "common/tensors/safetensors_reader.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

constexpr size_t kMostNamed = 10;
constexpr const char* kCounter = ".num_batches_tracked";  // PyTorch's counter; not used here

// `longest`: the length of the longest key of `names`. A name in a file may be much longer.
std::string Renamed(const std::string& name, const TensorNames& names, size_t longest) {
  for (size_t length = name.size();; length = name.rfind('.', length - 1)) {
    if (length == std::string::npos) return name;
    const auto found = length > longest ? names.end() : names.find(name.substr(0, length));
    if (found != names.end()) {
      return found->second.empty() ? "" : found->second + name.substr(length);
    }
    if (length == 0) return name;
  }
}

// Returns the file's tensors by our names.
std::map<std::string, const StoredTensor*> ByOurNames(const SafetensorsReader& file,
                                                      const LoadOptions& options) {
  const TensorNames& names = options.names;
  std::map<std::string, const StoredTensor*> tensors;
  size_t longest = 0;
  for (const auto& [theirs, ours] : names) longest = std::max(longest, theirs.size());
  for (const StoredTensor& tensor : file.header().tensors) {
    const bool has_prefix = tensor.name.starts_with(options.prefix);
    const std::string name =
        Renamed(tensor.name.substr(has_prefix ? options.prefix.size() : 0), names, longest);
    if (name.empty()) continue;
    const auto [at, added] = tensors.emplace(name, &tensor);
    if (!added) {
      throw Error(ExitCode::kData, "{}: {} and {} would both become {}", file.path(),
                  Shown(at->second->name), Shown(tensor.name), Shown(name));
    }
  }
  return tensors;
}

std::string Why(const StoredTensor& stored, const TorchTensor& wanted) {
  if (!SafetensorsReader::IsFloat(stored.type)) {
    return fmt::format("{} has type {}, expected F32, BF16, F16 or F64", wanted.name(),
                       Name(stored.type));
  }
  return fmt::format("{} is {} in the file, and {} in the network", wanted.name(),
                     stored.ShapeString(), wanted.ShapeString());
}

// Joins the first few texts, followed by the number of the others.
std::string FirstOf(std::vector<std::string> texts) {
  if (texts.size() > kMostNamed) {
    const auto more = static_cast<int64_t>(texts.size() - kMostNamed);
    texts.resize(kMostNamed);
    texts.push_back(fmt::format("and {} more", FormatCount(more)));
  }
  return Join(texts, "; ");
}

// `hint` is advice, or an explanation that covers all mismatches.
[[noreturn]] void Refuse(const std::string& path, const std::vector<std::string>& mismatches,
                         const std::string& hint) {
  throw Error(ExitCode::kData, "{}: does not fit the network{}: {}", path, hint,
              FirstOf(mismatches));
}

// A tensor in the file and the variable that it belongs to.
struct Fit {
  const StoredTensor* stored;
  const TorchTensor* variable;
};

struct Fits {
  std::vector<Fit> fits;
  std::vector<std::string> skipped;
};

// What DistributedDataParallel, torch.compile and others put before all names of a file.
std::string CommonPrefix(const SafetensorsHeader& header) {
  std::string prefix;
  const auto is_common = [&](const std::string& longer) {
    return std::ranges::all_of(header.tensors, [&](const StoredTensor& tensor) {
      return tensor.name.starts_with(longer);
    });
  };
  constexpr int kMostWrappers = 4;  // a name may be as long as the file
  for (int i = 0; i < kMostWrappers; ++i) {
    for (const char* part : {"module.", "_orig_mod.", "model.", "backbone."}) {
      if (!is_common(prefix + part)) continue;
      prefix += part;
      break;
    }
  }
  return prefix;
}

std::string HintFor(const SafetensorsReader& file, const TorchTensors& torch, const Fits& found,
                    bool names_fit) {
  const auto format = file.header().metadata.find("format");
  if (format != file.header().metadata.end() && format->second == "muster checkpoint") {
    return ": it is part of a checkpoint; `muster export` converts the checkpoint's folder to a "
           "file of weights";
  }
  if (!found.fits.empty()) return " (launch --skip-mismatched loads the variables that fit)";
  const std::string prefix = CommonPrefix(file.header());
  const bool fits_without = std::ranges::any_of(torch.tensors(), [&](const TorchTensor& tensor) {
    return file.header().Find(prefix + tensor.name()) != nullptr;
  });
  if (!names_fit && fits_without && !prefix.empty()) {
    return fmt::format(
        ": all of its names begin with {0} (`muster import --strip-prefix {0}` removes it)",
        prefix);
  }
  return names_fit ? ": it has variables of these names, but none with the network's shape"
                   : ": it has none of the network's variables (for other names, see "
                     "`muster import --map`)";
}

// `torch` and `file` must outlive the result.
Fits FindFits(const SafetensorsReader& file, const TorchTensors& torch,
              const LoadOptions& options) {
  auto stored = ByOurNames(file, options);
  std::erase_if(stored, [](const auto& one) { return one.first.ends_with(kCounter); });
  Fits result;
  bool names_fit = false;
  for (const TorchTensor& wanted : torch.tensors()) {
    const auto found = stored.find(wanted.name());
    if (found == stored.end()) {
      result.skipped.push_back(
          fmt::format("{} {} is missing", wanted.name(), wanted.ShapeString()));
      continue;
    }
    const StoredTensor& tensor = *found->second;
    if (SafetensorsReader::IsFloat(tensor.type) && tensor.shape == wanted.shape()) {
      result.fits.push_back({&tensor, &wanted});
    } else {
      names_fit = true;
      result.skipped.push_back(Why(tensor, wanted));
    }
    stored.erase(found);
  }
  for (const auto& [name, tensor] : stored) {
    result.skipped.push_back(fmt::format("{} {} is in the file, but not in the network",
                                         Shown(name), tensor->ShapeString()));
  }
  const bool all = result.skipped.empty() || options.skip_mismatched;
  if (result.fits.empty() || !all) {
    Refuse(file.path(), result.skipped, HintFor(file, torch, result, names_fit));
  }
  return result;
}

WeightsMatch Match(const Fits& found) {
  WeightsMatch match{.skipped = found.skipped};
  for (const Fit& fit : found.fits) match.variables.push_back(fit.variable->variable());
  return match;
}

}  // namespace

WeightsMatch MatchWeights(const SafetensorsReader& file, const Graph& graph,
                          const LoadOptions& options) {
  const TorchTensors torch(graph);
  return Match(FindFits(file, torch, options));
}

WeightsMatch LoadWeights(const SafetensorsReader& file, const Graph& graph,
                         const LoadOptions& options, std::span<float> weights) {
  const TorchTensors torch(graph);
  const Fits found = FindFits(file, torch, options);
  std::vector<float> values;
  for (const Fit& fit : found.fits) {
    const Variable& variable = graph.variables()[static_cast<size_t>(fit.variable->variable())];
    values.resize(variable.count);
    file.ReadFloats(*fit.stored, values);
    fit.variable->FromTorch(values, weights.subspan(variable.offset, variable.count));
  }
  return Match(found);
}

void RequireFinite(const std::string& file, const Graph& graph, const WeightsMatch& match,
                   std::span<const float> weights, const char* advice) {
  const TorchTensors torch(graph);
  std::vector<std::string> found;
  for (const TorchTensor& tensor : torch.tensors()) {
    if (std::ranges::find(match.variables, tensor.variable()) == match.variables.end()) continue;
    const Variable& variable = graph.variables()[static_cast<size_t>(tensor.variable())];
    const auto values = weights.subspan(variable.offset, variable.count);
    const auto count = std::ranges::count_if(values, [](float x) { return !std::isfinite(x); });
    if (count == 0) continue;
    found.push_back(fmt::format("{} of the {} of {}", FormatCount(count),
                                FormatCount(static_cast<int64_t>(variable.count)), tensor.name()));
  }
  if (found.empty()) return;
  throw Error(ExitCode::kData, "{}: has non-finite numbers: {}{}", file, FirstOf(std::move(found)),
              advice);
}

namespace {

constexpr const char* kWeightsHash = "weights_hash";

// Hashes the variables in the network's layout. Empty if this version cannot compute the hash.
std::optional<std::string> WeightsHashOf(const SafetensorsReader& file) {
  try {
    const auto config = ConfigOf(file.header().metadata, file.path());
    if (!config) return std::nullopt;
    const Graph graph = BuildGraph(config->model(), InputShape(config->data()));
    Arena weights(graph.arena_floats());
    (void)LoadWeights(file, graph, {}, weights.floats());
    return fmt::format("{:016x}", HashVariables(graph.layout(), weights.floats()));
  } catch (const Error&) {  // from another version, or a mismatch that is reported elsewhere
    return std::nullopt;
  }
}

// "" if the file is intact.
std::string DamageIn(const SafetensorsReader& file) {
  const Metadata& metadata = file.header().metadata;
  const char* const key = metadata.contains(kContentsHash) ? kContentsHash : kWeightsHash;
  const auto expected = metadata.find(key);
  if (expected == metadata.end()) return "";
  const std::optional<std::string> got =
      key == kContentsHash ? ContentsHashOf(file) : WeightsHashOf(file);
  if (!got || *got == expected->second) return "";
  return fmt::format("{}: is damaged or was changed: expected the {} {} from its metadata, got {}",
                     file.path(), key, Shown(expected->second), *got);
}

}  // namespace

void RequireWhole(const SafetensorsReader& file) {
  const std::string damage = DamageIn(file);
  if (damage.empty()) return;
  throw Error(ExitCode::kData,
              "{}; use another copy, or write it again with muster launch --resume RUN_DIR",
              damage);
}

std::string DamageOf(const std::string& path) {
  try {
    return DamageIn(SafetensorsReader(path));
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace muster
