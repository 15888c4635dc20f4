#include "common/link/program_variables.h"

#include <fmt/core.h>

#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/text.h"

namespace muster {
namespace {

constexpr size_t kMostFloats = size_t{1} << 36;  // 256 GiB

// The number of elements, or 0 if a dimension is not positive or there are too many elements.
size_t CountOf(const wire::VariableShape& variable) {
  size_t count = 1;
  for (const int64_t n : variable.shape()) {
    if (n <= 0 || static_cast<size_t>(n) > kMostFloats / count) return 0;
    count *= static_cast<size_t>(n);
  }
  return count;
}

bool IsFactor(float value) { return std::isfinite(value) && value >= 0; }

std::string TroubleWith(const wire::VariableShape& variable) {
  if (variable.name().empty()) return "expected a name";
  if (Printable(variable.name()) != variable.name()) return "expected a printable name";
  if (variable.name() == "__metadata__") return "safetensors files reserve this name";
  if (CountOf(variable) == 0) {
    return fmt::format("expected a shape of positive dimensions and at most {} elements, got [{}]",
                       kMostFloats, Join(variable.shape(), ","));
  }
  if (!IsFactor(variable.weight_decay())) {
    return fmt::format("weight decay: expected 0 or more, got {:g}", variable.weight_decay());
  }
  if (!IsFactor(variable.learning_rate_multiplier())) {
    return fmt::format("learning rate multiplier: expected 0 or more, got {:g}",
                       variable.learning_rate_multiplier());
  }
  return "";
}

std::string LineOf(const Variable& variable) {
  std::string line = variable.name + " " + variable.ShapeString();
  if (variable.weight_decay) line += fmt::format(" weight decay {}", *variable.weight_decay);
  if (variable.learning_rate_multiplier != 1)
    line += fmt::format(" learning rate x {}", variable.learning_rate_multiplier);
  if (variable.kind == Variable::Kind::kStatistic) line += " averaged";
  return line;
}

}  // namespace

VariableLayout LayOutVariables(
    const google::protobuf::RepeatedPtrField<wire::VariableShape>& variables,
    const std::string& optimizer) {
  if (variables.empty()) throw Error(ExitCode::kUsage, "expected at least one variable, got none");
  std::vector<Variable> laid_out;
  std::vector<std::string> description;
  std::set<std::string> names;
  size_t offset = 0;
  for (const wire::VariableShape& one : variables) {
    std::string trouble = TroubleWith(one);
    if (trouble.empty() && !names.insert(one.name()).second) trouble = "the name is taken";
    if (trouble.empty() && CountOf(one) > kMostFloats - offset)
      trouble = fmt::format("all variables together have more than {} elements", kMostFloats);
    if (!trouble.empty()) {
      throw Error(ExitCode::kUsage, "variable {} \"{}\": {}", laid_out.size(),
                  Printable(one.name()), trouble);
    }
    Variable variable{.name = one.name(),
                      .layer = static_cast<int>(laid_out.size()),
                      .shape = {one.shape().begin(), one.shape().end()},
                      .offset = offset,
                      .count = CountOf(one),
                      .fan_in = 1,
                      .fan_out = 1};
    if (one.has_weight_decay()) variable.weight_decay = one.weight_decay();
    if (one.has_learning_rate_multiplier())
      variable.learning_rate_multiplier = one.learning_rate_multiplier();
    if (one.averaged()) {
      variable.kind = Variable::Kind::kStatistic;
      variable.statistic_momentum = 1;
    }
    constexpr size_t kAlign = VariableLayout::kAlignFloats;
    offset += (variable.count + kAlign - 1) / kAlign * kAlign;
    description.push_back(LineOf(variable));
    laid_out.push_back(std::move(variable));
  }
  if (!optimizer.empty()) description.push_back("optimizer " + Printable(optimizer));
  return VariableLayout(std::move(laid_out), std::move(description));
}

VariableLayout DescribeVariables(
    const google::protobuf::RepeatedPtrField<wire::VariableShape>& variables, wire::Hello& hello) {
  VariableLayout layout = LayOutVariables(variables, hello.optimizer());
  *hello.mutable_variable() = variables;
  hello.set_graph_hash(layout.hash());
  for (const std::string& line : layout.description()) hello.add_layer(line);
  constexpr size_t kMostBytes = 256 << 10;
  if (hello.ByteSizeLong() > kMostBytes) hello.clear_layer();
  if (hello.ByteSizeLong() > kMostBytes) {
    throw Error(ExitCode::kUsage,
                "the names of {} variables take {} bytes: expected at most {}; use shorter names",
                variables.size(), hello.ByteSizeLong(), kMostBytes);
  }
  return layout;
}

}  // namespace muster
