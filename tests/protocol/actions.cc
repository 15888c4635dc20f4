#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

#include "common/base/error.h"
#include "tests/protocol/model_world.h"

namespace muster::testing {
namespace {

constexpr std::array<const char*, 11> kKinds{"start",   "say",   "read",  "wait", "ahead",  "end",
                                             "silence", "leave", "stall", "join", "restart"};

}  // namespace

std::string TextOf(const Action& action) {
  return fmt::format("{}:{}", kKinds.at(static_cast<size_t>(action.kind)), action.worker);
}

std::vector<Action> ParseActions(const std::string& text) {
  std::vector<Action> actions;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    const size_t colon = std::min(word.find(':'), word.size());
    const auto kind = std::ranges::find(kKinds, word.substr(0, colon));
    int worker = 0;
    if (colon < word.size()) {
      std::from_chars(word.data() + colon + 1, word.data() + word.size(), worker);
    }
    if (kind == kKinds.end()) {
      throw Error(ExitCode::kUsage,
                  "unknown action \"{}\": expected an action as printed for a failure", word);
    }
    actions.push_back(
        {static_cast<Action::Kind>(kind - kKinds.begin()), static_cast<uint8_t>(worker)});
  }
  return actions;
}

}  // namespace muster::testing
