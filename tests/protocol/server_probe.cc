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

std::string ServerProbe::choice() const { return server_.coordinator_.algorithms_.Keep(); }

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
  return BoundaryName{step, step > 0 && evaluator.IsDueAfter(step - 1) && !evaluator.running()};
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

// ---------------------------------------------------------------------------------- contents

std::string ServerProbe::Wrong(const testing::ModelJob& job) const {
  const Coordinator& coordinator = server_.coordinator_;
  if (!coordinator.has_begun()) return "";
  const int64_t step = coordinator.step_;
  const bool over = step >= job.plan().total_steps;
  for (size_t c = 0; c < job.chunks().size(); ++c) {
    if (std::string wrong = WrongChunk(job, c); !wrong.empty()) return wrong;
  }
  if (std::string wrong = WrongCounts(job); !wrong.empty()) return wrong;
  if (over || coordinator.phase_ != Coordinator::Phase::kTraining) return "";
  for (int64_t slice = 0; slice < job.plan().slices; ++slice) {
    const auto& loss = coordinator.losses_.results_[static_cast<size_t>(slice)];
    if (!loss.present || loss.loss == job.Loss(step, slice)) continue;
    return fmt::format("the loss of slice {} of step {} is not that of the undisturbed run", slice,
                       step);
  }
  return WrongParts(job);
}

// Weights, and what is updated with them.
std::string ServerProbe::WrongChunk(const testing::ModelJob& job, size_t c) const {
  const Coordinator& coordinator = server_.coordinator_;
  const Variables& variables = coordinator.variables_;
  const Chunk& chunk = job.chunks()[c];
  const int64_t step = coordinator.step_;
  const bool updated = step < job.plan().total_steps && coordinator.published_[c];
  const auto differs = [&](std::span<const float> is, std::span<const float> must) {
    return !std::ranges::equal(is.subspan(chunk.begin, chunk.floats()),
                               must.subspan(chunk.begin, chunk.floats()));
  };
  for (int64_t version = step; version <= step + (updated ? 1 : 0); ++version) {
    if (!differs(Weights(version), job.Weights(version))) continue;
    std::string why;
    if (version > 0) {
      const float before = job.Weights(version - 1)[chunk.begin];
      why = job.SlicesIn(before - Weights(version)[chunk.begin], version - 1);
    }
    return fmt::format("chunk {} of W({}) is not that of the undisturbed run{}", c, version, why);
  }
  const int64_t at = step + (updated ? 1 : 0), updates = job.Updates(at);
  if (variables.state_arenas() > 0 && differs(variables.State(0, updates), job.Momentum(at))) {
    return fmt::format("chunk {} of the momentum before step {} is not that of the undisturbed run",
                       c, at);
  }
  if (variables.has_average() && differs(variables.Average(updates), job.Average(at))) {
    return fmt::format("chunk {} of the average before step {} is not that of the undisturbed run",
                       c, at);
  }
  return "";
}

// Of the steps that were skipped and were not, and of the evaluations.
std::string ServerProbe::WrongCounts(const testing::ModelJob& job) const {
  const Coordinator& coordinator = server_.coordinator_;
  const int64_t step = coordinator.step_, updates = coordinator.variables_.updates();
  if (updates != job.Updates(step)) {
    return fmt::format("{} updates before step {}: expected {}", updates, step, job.Updates(step));
  }
  if (const int64_t skipped = coordinator.nonfinite_.skipped_in_a_row();
      skipped != job.SkippedInARow(step)) {
    return fmt::format("{} steps skipped in a row before step {}: expected {}", skipped, step,
                       job.SkippedInARow(step));
  }
  if (coordinator.progress_.steps() != step) {
    return fmt::format("{} steps are counted before step {}", coordinator.progress_.steps(), step);
  }
  const auto& evaluated = coordinator.progress_.evaluated();
  if (job.bounds().evaluates && done() && (!evaluated || evaluated->version != step)) {
    return "the run has ended without its last evaluation";
  }
  if (!evaluated) return "";
  double loss = 0;
  for (int64_t block = 0; block < testing::ModelJob::kBlocks; ++block) {
    loss += testing::ModelJob::BlockLoss(evaluated->version, block);
  }
  loss /= testing::ModelJob::kBlocks * testing::ModelJob::kBlockSize;
  if (evaluated->loss == loss) return "";
  return fmt::format("the evaluation of W({}) came to a loss of {}: expected {}",
                     evaluated->version, evaluated->loss, loss);
}

// Each slice of a chunk once, and what came of it still lies where it came.
std::string ServerProbe::WrongParts(const testing::ModelJob& job) const {
  const Coordinator& coordinator = server_.coordinator_;
  const PartialGradients& gradients = coordinator.aggregator_.gradients_;
  for (size_t c = 0; c < job.chunks().size(); ++c) {
    std::vector<int> times(static_cast<size_t>(job.plan().slices));
    int64_t slices = 0;
    for (const PartialGradients::Part& part : gradients.states_[c].parts) {
      if (part.present == PartialGradients::Presence::kMissing) continue;
      const Range range = Covers(part.node, job.plan().slices);
      slices += range.size();
      for (int64_t slice = range.begin; slice < range.end; ++slice) {
        if (++times[static_cast<size_t>(slice)] == 1) continue;
        return fmt::format("slice {} of chunk {} of step {} has come twice", slice, c,
                           coordinator.step_);
      }
      if (part.payload.data == nullptr) continue;
      const auto must = job.Gradient(coordinator.step_, part.node)
                            .subspan(job.chunks()[c].begin, job.chunks()[c].floats());
      if (std::ranges::equal(part.payload.floats(), must)) continue;
      return fmt::format(
          "the gradient of subtree {}.{} of chunk {} of step {} is not what it was in the "
          "undisturbed run, or was overwritten before it was added",
          part.node.level, part.node.index, c, coordinator.step_);
    }
    if (gradients.states_[c].slices == slices) continue;
    return fmt::format("some slices of chunk {} of step {} are counted twice", c,
                       coordinator.step_);
  }
  return "";
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
    Put(text, " {}:{}{}{}{}{}{}{}\n", rank, member.ready ? " ready" : "",
        member.entered ? early ? " enters" : " entered" : "", member.finished ? " finished" : "",
        member.leaving ? " leaving" : "", member.released ? " released" : "",
        member.given_up ? " given-up" : "", member.was_ready ? " was-ready" : "");
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
  Put(text, "evaluated {} late ", evaluator.last_version_);
  PutRanks(text, evaluator.were_late_);
  text += '\n';
  if (!evaluator.evaluation_) return;
  const Evaluation& evaluation = *evaluator.evaluation_;
  Put(text, "evaluates {} late ", evaluation.version_);
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
  for (const auto& [slice, kills] : coordinator.lost_work_.kills_) {
    Put(text, " {}:{}{}", slice, kills.count,
        coordinator.lost_work_.HeldBackUntil(slice) ? " held back" : "");
  }
  text += '\n';
  Put(text, "{}{}{}", coordinator.resumed_ ? "resumed" : "new",
      coordinator.resumed_ && coordinator.resumed_->evaluated() ? " evaluated" : "",
      coordinator.progress_.MedianStep() ? coordinator.StepsAreLong() ? " long\n" : " timed\n"
                                         : "\n");
  const auto tuner = coordinator.algorithms_.tuner();
  Put(text, "tuner {} choice {}\n", tuner ? static_cast<int>(*tuner) : -1, choice());
  PutMembers(text);
  PutWork(text);
  PutGradients(text);
  PutEvaluation(text);
  return text;
}

}  // namespace muster
