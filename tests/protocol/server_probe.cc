#include "tests/protocol/server_probe.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "ps/record/checkpoint_arenas.h"

namespace muster {
namespace {

using namespace std::chrono_literals;

template <typename... Args>
void Put(std::string& text, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
}

void PutBits(std::string& text, const std::vector<bool>& bits) {
  for (const bool bit : bits) text += bit ? '1' : '0';
}

void PutNodes(std::string& text, const std::vector<std::vector<TreeNode>>& nodes) {
  for (const std::vector<TreeNode>& share : nodes) {
    for (const TreeNode& node : share) Put(text, "{}.{} ", node.level, node.index);
    text += '/';
  }
}

}  // namespace

std::string ServerProbe::failure() const {
  return server_.failure().is_set() ? server_.failure().get()->what : "";
}

std::span<const float> ServerProbe::Weights(int64_t version) const {
  return run().parts().engine.variables.Weights(version);
}

std::span<const float> ServerProbe::EvaluatedAverage() const {
  return run().parts().engine.variables.EvaluatedAverage();
}

// A cheaper version of Describe.
std::optional<ServerProbe::BoundaryName> ServerProbe::AtBoundary() const {
  if (!run().parts().AtBoundary()) return std::nullopt;
  const Evaluator& evaluator = run().parts().work.evaluator;
  return BoundaryName{step(), run().resumption().IsEvaluated() || step() == 0,
                      step() > 0 && evaluator.IsDueAfter(step() - 1) && !evaluator.running()};
}

bool ServerProbe::HoldsBack() const {
  const PoisonWatch& poison = run().parts().work.poison;
  const auto now = std::chrono::steady_clock::now();
  return std::ranges::any_of(poison.losses(), [&](const auto& losses) {
    return poison.PausedUntil(losses.first, now).has_value();
  });
}

ServerProbe::Boundary ServerProbe::Keep() {
  Variables& variables = server_.run().engine().variables;
  const std::vector<std::string> names = CheckpointArenaNames(variables);
  const auto arenas = CheckpointArenas(variables, step());
  auto image = std::make_shared<TensorImage>(variables.layout(), names.size());
  for (const auto& job : image->CopyJobs({arenas.begin(), arenas.end()})) job();
  return {run().resumption().Describe(), CheckpointTensors(variables.layout(), names),
          std::move(image)};
}

std::chrono::duration<double> ServerProbe::Patience() const {
  std::chrono::duration<double> longest = run().dispatcher().late().After();
  const Evaluator& evaluator = run().parts().work.evaluator;
  if (evaluator.running()) {
    const std::chrono::duration<double> gap = evaluator.current().longest_gap();
    longest = std::max(longest, 1s + 2 * gap);
  }
  return longest;
}

// ---------------------------------------------------------------------------------- what decides

// Closed orders only reserve a buffer of a present member.
bool ServerProbe::Counts(const StepOrder& order) const {
  return order.open || (order.rank < roster().size() && order.step >= step());
}

std::string ServerProbe::NameOf(uint64_t id) const {
  int name = 0;
  for (const StepOrder& order : run().parts().work.slices.orders()) {
    if (order.id == id) return order.open ? fmt::format("#{}", name) : "-";
    if (Counts(order)) ++name;
  }
  return "-";
}

void ServerProbe::PutMembers(std::string& text) const {
  text += "members\n";
  for (uint32_t rank = 0; rank < roster().size(); ++rank) {
    const Member& member = roster().at(rank);
    const bool early = member.weights_from && *member.weights_from > step();
    Put(text, " {}: {}{}{}{}\n", rank, static_cast<int>(member.state),
        member.weights_from ? early ? " enters" : " active" : "", member.leaving ? " leaving" : "",
        member.present() && member.was_ready ? " was-ready" : "");
  }
}

void ServerProbe::PutWork(std::string& text) const {
  text += "shares ";
  PutNodes(text, run().parts().work.shares.assignment().nodes);
  text += " for ";
  for (const uint32_t rank : run().parts().work.shares.sharing()) Put(text, "{},", rank);
  text += '\n';
  int name = 0;
  for (const StepOrder& order : run().parts().work.slices.orders()) {
    if (!Counts(order)) continue;
    Put(text, " #{}: rank {} step {} buffer {}{}{} ", name++, order.rank, order.step, order.buffer,
        order.urgent ? " urgent" : "", order.open ? "" : " closed");
    for (const StepOrder::Part& part : order.parts) {
      Put(text, "{}.{}{} lacks ", part.node.level, part.node.index, part.in_use ? " used" : "");
      PutBits(text, part.missing);
    }
    text += " losses ";
    for (const int64_t slice : order.losses) Put(text, "{},", slice);
    text += '\n';
  }
}

void ServerProbe::PutGradients(std::string& text) const {
  const Aggregator& aggregator = run().parts().engine.aggregator;
  Put(text, "aggregator{}{}{} done {} waiting {}\n", aggregator.collects() ? " collects" : "",
      aggregator.sums() ? " sums" : "", aggregator.skips() ? " skips" : "", aggregator.done(),
      aggregator.waiting());
  for (size_t c = 0; c < aggregator.chunks().size(); ++c) {
    for (const PartialGradients::Part& part : aggregator.gradients().parts(c)) {
      Put(text, " {}.{}{}", part.node.level, part.node.index,
          part.payload.data == nullptr ? "+" : "");
    }
    text += '\n';
  }
}

void ServerProbe::PutEvaluation(std::string& text) const {
  const Evaluator& evaluator = run().parts().work.evaluator;
  if (!evaluator.running()) return;
  const Evaluation& evaluation = evaluator.current();
  Put(text, "evaluates {} {}", SetName(evaluation.set()), evaluation.version());
  for (int64_t b = 0; b < evaluation.blocks(); ++b) {
    if (evaluation.Has(b)) Put(text, " block {} here", b);
  }
  for (uint32_t rank = 0; rank < roster().size(); ++rank) {
    for (const int64_t b : evaluation.AssignedTo(rank)) Put(text, " block {} of {}", b, rank);
  }
  text += '\n';
}

std::string ServerProbe::Text() const {
  const Dispatcher& dispatcher = run().dispatcher();
  const RunPosition& state = run().parts().state;
  std::string text;
  text.reserve(1024);
  Put(text, "phase {} step {} ordered {} wanted {}{}{}{}\npublished ",
      static_cast<int>(state.phase), state.step, dispatcher.ordered() - state.step,
      dispatcher.wanted() - state.step,
      run().parts().work.slices.some_unassigned() ? " unassigned" : "",
      run().parts().work.slices.needs_helpers() ? " needs-helpers" : "",
      run().parts().state.losses_complete ? " waits" : "");
  PutBits(text, run().parts().feed.published());
  text += " losses";
  if (state.phase == RunPosition::Phase::kTraining) {
    const StepLosses& losses = run().parts().work.slices.losses();
    for (int64_t slice = 0; slice < state.plan.slices; ++slice) {
      losses.Has(slice) ? Put(text, " {}", losses.RankOf(slice)) : Put(text, " ?");
    }
  }
  text += " lost-at";
  for (const auto& [item, losses] : run().parts().work.poison.losses()) {
    const auto now = std::chrono::steady_clock::now();
    Put(text, " {}{}:{}{}", item.kind == WorkItem::Kind::kBlock ? "block " : "", item.index,
        losses.count, run().parts().work.poison.PausedUntil(item, now) ? " paused" : "");
  }
  for (const auto& [rank, items] : run().parts().work.poison.taken()) {
    Put(text, " taken from {}:", rank);
    for (const WorkItem& item : items) {
      Put(text, " {}{}", item.kind == WorkItem::Kind::kBlock ? "block " : "", item.index);
    }
  }
  const Resumption& resumption = run().resumption();
  Put(text, "\n{}{}{}{}\n", resumption.is_resumed() ? "resumed" : "new",
      resumption.is_resumed() && resumption.IsEvaluated() ? " evaluated" : "",
      run().parts().keeper.progress.MedianStep() ? " timed" : "",
      run().parts().work.shares.by_slice() ? " by slice" : "");
  PutMembers(text);
  PutWork(text);
  PutGradients(text);
  PutEvaluation(text);
  return text;
}

}  // namespace muster
