#include "cli/model/inspect_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "cli/model/float_blocks.h"
#include "cli/text/text_table.h"
#include "cli/text/units.h"
#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/log.h"
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/model/model_metadata.h"
#include "common/model/torch_tensors.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

struct Statistics {
  double squares = 0, least = INFINITY, most = -INFINITY;
  int64_t nonfinite = 0;
};

void Add(std::span<const float> values, Statistics& result) {
  for (const float x : values) {
    if (!std::isfinite(x)) {
      ++result.nonfinite;
      continue;
    }
    result.squares += double{x} * x;
    result.least = std::min<double>(result.least, x);
    result.most = std::max<double>(result.most, x);
  }
}

Statistics StatisticsOf(const SafetensorsReader& model, const StoredTensor& tensor) {
  Statistics result;
  ForEachFloatBlock(model, tensor, [&](std::span<const float> values) { Add(values, result); });
  return result;
}

// Of the variables that do not learn at the rate of all, by their names in the file.
std::map<std::string, float> LearningRates(const Metadata& metadata, const std::string& path) {
  std::map<std::string, float> rates;
  try {
    const auto config = ConfigOf(metadata, path);
    if (!config) return rates;
    const Graph graph = BuildGraph(config->model(), InputShape(config->data()));
    const TorchTensors torch(graph);
    for (const TorchTensor& tensor : torch.tensors()) {
      const Variable& variable = graph.variables()[static_cast<size_t>(tensor.variable())];
      if (variable.learning_rate_multiplier != 1) {
        rates[tensor.name()] = variable.learning_rate_multiplier;
      }
    }
  } catch (const Error&) {
    // Of another version, perhaps: the rest can be shown all the same.
  }
  return rates;
}

std::string LearnsText(const std::map<std::string, float>& rates, const std::string& name) {
  const auto found = rates.find(name);
  if (found == rates.end()) return "";
  return found->second == 0 ? "frozen" : fmt::format("rate x {:g}", found->second);
}

class Report {
 public:
  Report(const SafetensorsReader& model, const std::string& shown)
      : model_(model),
        shown_(shown),
        rates_(LearningRates(model.header().metadata, model.path())) {}

  std::vector<std::string> Lines() {
    TextTable table({{"variable"},
                     {"type"},
                     {"shape"},
                     {"numbers", true},
                     {"norm", true},
                     {"least", true},
                     {"most", true},
                     {""}});
    for (const StoredTensor& tensor : model_.header().tensors) table.AddRow(RowOf(tensor));
    table.AddRule();
    table.AddRow({"total", "", "", FormatCount(static_cast<int64_t>(elements_)),
                  fmt::format("{:.4g}", std::sqrt(squares_)), "", "", ""});
    std::vector<std::string> lines{shown_, ""};
    for (std::string& line : table.Lines()) lines.push_back(std::move(line));
    lines.push_back("");
    for (const auto& [key, value] : model_.header().metadata) lines.push_back(RowOf(key, value));
    lines.push_back(fmt::format("  {:<16} {}", "not finite",
                                nonfinite_.empty() ? "none" : Join(nonfinite_, ", ")));
    return lines;
  }

 private:
  std::vector<std::string> RowOf(const StoredTensor& tensor) {
    std::vector<std::string> row{Printable(tensor.name), Name(tensor.type), tensor.ShapeString(),
                                 FormatCount(static_cast<int64_t>(tensor.elements()))};
    elements_ += tensor.elements();
    const auto number = [](double x) { return fmt::format("{:.4g}", x); };
    if (tensor.type == TensorType::kI64 && tensor.elements() == 1) {
      int64_t value = 0;
      model_.ReadIntegers(tensor, {&value, 1});
      row.insert(row.end(), {"", "", FormatCount(value), ""});
    } else if (SafetensorsReader::IsFloat(tensor.type) && tensor.elements() > 0) {
      const Statistics statistics = StatisticsOf(model_, tensor);
      squares_ += statistics.squares;
      std::string remark = LearnsText(rates_, tensor.name);
      if (statistics.nonfinite > 0) {
        remark += fmt::format("{}{} not finite", remark.empty() ? "" : ", ",
                              FormatCount(statistics.nonfinite));
        nonfinite_.push_back(
            fmt::format("{} of {}", FormatCount(statistics.nonfinite), Printable(tensor.name)));
      }
      row.insert(row.end(), {number(std::sqrt(statistics.squares)), number(statistics.least),
                             number(statistics.most), remark});
    } else {
      row.insert(row.end(), {"", "", "", ""});
    }
    return row;
  }

  static std::string RowOf(const std::string& key, const std::string& value) {
    const std::string shown = key == "config"
                                  ? "all of it is in the file: muster inspect FILE --config"
                                  : Printable(value);
    return fmt::format("  {:<16} {}", Printable(key), shown);
  }

  const SafetensorsReader& model_;
  const std::string shown_;
  const std::map<std::string, float> rates_;
  uint64_t elements_ = 0;
  double squares_ = 0;
  std::vector<std::string> nonfinite_;
};

}  // namespace

std::vector<std::string> InspectModelLines(const SafetensorsReader& model,
                                           const std::string& shown) {
  return Report(model, shown).Lines();
}

std::string ConfigTextOf(const SafetensorsReader& model) {
  const auto found = model.header().metadata.find("config");
  if (found == model.header().metadata.end()) {
    throw Error(ExitCode::kUsage, "{}: holds no config: it was not written by a run", model.path());
  }
  return found->second;
}

}  // namespace muster
