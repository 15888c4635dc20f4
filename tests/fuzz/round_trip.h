// Checks that an accepted message prints and parses to the same message.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "common/config/build_graph.h"
#include "common/graph/graph.h"
#include "proto/config.pb.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {

// Prints and parses a message, and checks that the result prints to the same text. Returns it.
template <typename Message>
Message ReadAgain(const Message& taken, const std::function<std::string(const Message&)>& print,
                  const std::function<Message(const std::string&)>& read) {
  const std::string printed = print(taken);
  Message again;
  try {
    again = read(printed);
  } catch (const std::exception& error) {
    Broken("the printed text is refused: " + std::string(error.what()) + "\n" + printed);
  }
  if (print(again) != printed)
    Broken("printing twice differs: " + printed + "\nand\n" + print(again));
  return again;
}

// Requires that it is the same network.
inline void RequireSameNetwork(const Graph& taken, const config::Model& again, const Shape& input) {
  Require(BuildGraph(again, input).layout().hash() == taken.layout().hash(),
          "the printed network has different variables");
}

}  // namespace muster::fuzz
