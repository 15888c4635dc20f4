#include "tests/protocol/server_probe.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "ps/checkpoint_arenas.h"

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

void PutRanks(std::string& text, const std::set<uint32_t>& ranks) {
  for (const uint32_t rank : ranks) Put(text, "{},", rank);
}

}  // namespace

void ServerProbe::LoseSilent(std::chrono::steady_clock::duration since) {
  server_.members_.CheckSilence(std::chrono::steady_clock::now(),
                                std::chrono::duration<double>(since).count());
}

std::string ServerProbe::failure() const {
  return server_.failure_.is_set() ? server_.failure_.get()->what : "";
}

std::span<const float> ServerProbe::Weights(int64_t version) const {
  return std::as_const(server_.coordinator_.variables_).Weights(version);
}

std::span<const float> ServerProbe::EvaluatedAverage() const {
  return std::as_const(server_.coordinator_.variables_).EvaluatedAverage();
}

// What Describe says of it without much ado.
std::optional<ServerProbe::BoundaryName> ServerProbe::AtBoundary() const {
  const Coordinator& coordinator = server_.coordinator_;
  if (!coordinator.AtBoundary()) return std::nullopt;
  const Evaluator& evaluator = coordinator.evaluator_;
  const int64_t step = coordinator.step_;
  return BoundaryName{step, coordinator.IsEvaluated() || step == 0,
                      step > 0 && evaluator.IsDueAfter(step - 1) && !evaluator.running()};
}

ServerProbe::Boundary ServerProbe::Keep() {
  Coordinator& coordinator = server_.coordinator_;
  Variables& variables = coordinator.variables_;
  const std::vector<std::string> names = CheckpointArenaNames(variables);
  const auto arenas = CheckpointArenas(variables, coordinator.step_);
  auto image = std::make_shared<TensorImage>(variables.layout(), names.size());
  for (const auto& job : image->CopyJobs({arenas.begin(), arenas.end()})) job();
  return {coordinator.Describe(), CheckpointTensors(variables.layout(), names), std::move(image)};
}

std::chrono::duration<double> ServerProbe::Patience() const {
  const Coordinator& coordinator = server_.coordinator_;
  std::chrono::duration<double> longest = coordinator.LateAfter();
  if (coordinator.evaluator_.running()) {
    const std::chrono::duration<double> gap = coordinator.evaluator_.current().longest_gap();
    longest = std::max(longest, 1s + 2 * gap);
  }
  return longest;
}

// ---------------------------------------------------------------------------------- what decides

// Closed ones only keep an arena of a member that is there.
bool ServerProbe::Counts(const Lease& lease) const {
  return lease.open || (lease.rank < roster().size() && lease.step >= step());
}

std::string ServerProbe::NameOf(uint64_t lease) const {
  int name = 0;
  for (const Lease& one : server_.coordinator_.work_.leases_.leases_) {
    if (one.id == lease) return one.open ? fmt::format("#{}", name) : "-";
    if (Counts(one)) ++name;
  }
  return "-";
}

uint32_t ServerProbe::AgeOf(uint32_t assignment) const {
  return server_.coordinator_.work_.assignment().id - assignment;
}

void ServerProbe::PutMembers(std::string& text) const {
  Put(text, "members {}\n", static_cast<int>(server_.members_.phase_));
  for (uint32_t rank = 0; rank < roster().size(); ++rank) {
    const Member& member = roster().at(rank);
    if (!member.peer) {
      Put(text, " {}: nobody{}\n", rank, member.given_up ? ", given up" : "");
      continue;
    }
    const bool early = member.entered_at > step();
    Put(text, " {}:{}{}{}{}{}{}{}{}\n", rank, member.ready ? " ready" : "",
        member.entered ? early ? " enters" : " entered" : "", member.finished ? " finished" : "",
        member.leaving ? " leaving" : "", member.released ? " released" : "",
        member.given_up ? " given-up" : "", member.was_ready ? " was-ready" : "",
        member.waits ? " waits" : "");
  }
}

void ServerProbe::PutWork(std::string& text) const {
  const WorkOrders& work = server_.coordinator_.work_;
  text += "shares ";
  PutNodes(text, work.assignment_.nodes);
  if (work.next_) {
    text += " next ";
    PutNodes(text, *work.next_);
  }
  text += " for ";
  for (const uint32_t rank : work.sharing_) Put(text, "{},", rank);
  text += '\n';
  int name = 0;
  for (const Lease& lease : work.leases_.leases_) {
    if (!Counts(lease)) continue;
    Put(text, " #{}: rank {} step {} node {}.{} arena {}{}{}{} pending ", name++, lease.rank,
        lease.step, lease.node.level, lease.node.index, lease.arena, lease.again ? " again" : "",
        lease.open ? "" : " closed", lease.late ? " late" : "");
    PutBits(text, lease.pending);
    text += " losses ";
    for (const int64_t slice : lease.losses) Put(text, "{},", slice);
    text += '\n';
  }
}

void ServerProbe::PutGradients(std::string& text) const {
  const Aggregator& aggregator = server_.coordinator_.aggregator_;
  Put(text, "aggregator {} done {} ready {}\n", static_cast<int>(aggregator.phase_),
      aggregator.done_, aggregator.ready_.size());
  for (const PartialGradients::ChunkState& state : aggregator.gradients_.states_) {
    std::vector<std::string> parts;
    for (const PartialGradients::Part& part : state.parts) {
      parts.push_back(fmt::format(
          "{}.{}{}{}", part.node.level, part.node.index,
          part.present == PartialGradients::Presence::kMissing ? "?" : "",
          part.present == PartialGradients::Presence::kHere && part.payload.data == nullptr ? "+"
                                                                                            : ""));
    }
    std::ranges::sort(parts);
    for (const std::string& part : parts) Put(text, " {}", part);
    Put(text, " = {}{}\n", state.slices, state.others ? " others" : "");
  }
}

void ServerProbe::PutEvaluation(std::string& text) const {
  const Evaluator& evaluator = server_.coordinator_.evaluator_;
  Put(text, "evaluated {} {} late ", SetName(evaluator.last_set_), evaluator.last_version_);
  PutRanks(text, evaluator.were_late_);
  text += '\n';
  if (!evaluator.evaluation_) return;
  const Evaluation& evaluation = *evaluator.evaluation_;
  Put(text, "evaluates {} {} late ", SetName(evaluation.set_), evaluation.version_);
  PutRanks(text, evaluation.late_);
  for (size_t b = 0; b < evaluation.results_.size(); ++b) {
    Put(text, " block {}{} of ", b, evaluation.results_[b].present ? " here" : "");
    PutRanks(text, evaluation.owners_[b]);
  }
  text += '\n';
}

std::string ServerProbe::Text() const {
  const Coordinator& coordinator = server_.coordinator_;
  std::string text;
  text.reserve(1024);
  Put(text, "phase {}{} step {} ordered {} held {} expects {}{}{}{}{} lost {}\npublished ",
      static_cast<int>(coordinator.phase_), coordinator.done_ ? " done" : "", coordinator.step_,
      coordinator.ordered_ - coordinator.step_, coordinator.held_.value_or(-1),
      coordinator.expected_ ? AgeOf(*coordinator.expected_) : 0U,
      coordinator.repair_due_ ? " repair" : "", coordinator.somebody_late_ ? " late" : "",
      coordinator.orphans_wait_ ? " orphans" : "", coordinator.losses_complete_ ? " complete" : "",
      server_.losses_.size());
  PutBits(text, coordinator.published_);
  text += " losses";
  for (const auto& loss : coordinator.losses_.results_) {
    loss.present ? Put(text, " {}", loss.rank) : Put(text, " ?");
  }
  text += " kills";
  for (const auto& [item, kills] : coordinator.lost_work_.kills_) {
    Put(text, " {}{}:{}{}", item.kind == WorkItem::Kind::kBlock ? "block " : "", item.index,
        kills.count, coordinator.lost_work_.HeldBackUntil(item) ? " held back" : "");
  }
  text += '\n';
  Put(text, "{}{}{}", coordinator.resumed_ ? "resumed" : "new",
      coordinator.resumed_ && coordinator.IsEvaluated() ? " evaluated" : "",
      coordinator.progress_.MedianStep() ? coordinator.StepsAreLong() ? " long\n" : " timed\n"
                                         : "\n");
  PutMembers(text);
  PutWork(text);
  PutGradients(text);
  PutEvaluation(text);
  return text;
}

}  // namespace muster
