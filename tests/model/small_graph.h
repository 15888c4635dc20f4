// Networks in text format for tests of model files.
#pragma once

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "common/config/build_graph.h"
#include "common/graph/graph.h"
#include "proto/config.pb.h"

namespace muster::testing {

// The layers before the loss.
inline Graph SmallGraph(const std::string& layers, const Shape& input) {
  config::Model model;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      layers + R"( layer { name: "loss" softmax_cross_entropy {} })", &model));
  return BuildGraph(model, input);
}

// A parameter buffer whose variables each hold 1, 2, 3, …
inline std::vector<float> Counted(const Graph& graph) {
  std::vector<float> arena(graph.arena_floats());
  for (const Variable& variable : graph.variables()) {
    const auto begin = arena.begin() + static_cast<std::ptrdiff_t>(variable.offset);
    std::iota(begin, begin + static_cast<std::ptrdiff_t>(variable.count), 1.0f);
  }
  return arena;
}

}  // namespace muster::testing
