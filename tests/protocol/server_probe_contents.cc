// Compares a server's contents with the undisturbed run.
#include <fmt/core.h>

#include <algorithm>

#include "tests/protocol/server_probe.h"

namespace muster {

std::string ServerProbe::Wrong(const testing::ModelJob& job) const {
  if (!has_begun()) return "";
  const int64_t step = this->step();
  const bool over = step >= job.plan().total_steps;
  for (size_t c = 0; c < job.chunks().size(); ++c) {
    if (std::string wrong = WrongChunk(job, c); !wrong.empty()) return wrong;
  }
  if (std::string wrong = WrongCounts(job); !wrong.empty()) return wrong;
  if (over || run().parts().state.phase != RunPosition::Phase::kTraining) return "";
  if (server_.failure().is_set()) return "";  // Goodbye ends work that nobody waits for
  const StepLosses& losses = run().parts().work.slices.losses();
  for (int64_t slice = 0; slice < job.plan().slices; ++slice) {
    if (!losses.Has(slice) || losses.LossOf(slice) == job.Loss(step, slice)) continue;
    return fmt::format("the loss of slice {} of step {} differs from the undisturbed run", slice,
                       step);
  }
  for (const uint32_t rank : roster().Seated()) {
    const Member& member = roster().at(rank);
    const RunWork& work = run().parts().work;
    const bool released = member.state >= MemberState::kReleased;
    if (!member.leaving || (!released && !member.weights_from)) continue;
    const bool owes = work.slices.Owes(rank) || work.evaluator.Owes(rank);
    if (released == owes) {
      return fmt::format("rank {} leaves, {} work, and was {}released", rank,
                         owes ? "owes" : "has delivered all its", released ? "" : "not ");
    }
  }
  return WrongParts(job);
}

// Checks weights, and the data updated with them.
std::string ServerProbe::WrongChunk(const testing::ModelJob& job, size_t c) const {
  const Variables& variables = run().parts().engine.variables;
  const Chunk& chunk = job.chunks()[c];
  const int64_t step = this->step();
  const bool updated = step < job.plan().total_steps && run().parts().feed.published()[c];
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
    return fmt::format("chunk {} of W({}) differs from the undisturbed run{}", c, version, why);
  }
  const int64_t at = step + (updated ? 1 : 0), updates = job.Updates(at);
  if (variables.state_arenas() > 0 && differs(variables.State(0, updates), job.Momentum(at))) {
    return fmt::format("chunk {} of the momentum before step {} differs from the undisturbed run",
                       c, at);
  }
  if (variables.has_average() && differs(variables.Average(updates), job.Average(at))) {
    return fmt::format("chunk {} of the average before step {} differs from the undisturbed run", c,
                       at);
  }
  return "";
}

// Compares the counts of skipped steps, other steps and evaluations.
std::string ServerProbe::WrongCounts(const testing::ModelJob& job) const {
  const Progress& progress = run().parts().keeper.progress;
  const int64_t step = this->step(), updates = run().parts().engine.variables.updates();
  if (updates != job.Updates(step)) {
    return fmt::format("{} updates before step {}: expected {}", updates, step, job.Updates(step));
  }
  if (const int64_t skipped = run().parts().nonfinite.skipped_in_a_row();
      skipped != job.SkippedInARow(step)) {
    return fmt::format("{} steps skipped in a row before step {}: expected {}", skipped, step,
                       job.SkippedInARow(step));
  }
  if (progress.steps() != step) {
    return fmt::format("{} steps are counted before step {}", progress.steps(), step);
  }
  const auto& evaluated = progress.evaluations().last();
  if (job.bounds().evaluates && done() && (!evaluated || evaluated->version != step)) {
    return "the run has ended without its last evaluation";
  }
  const auto& tested = progress.evaluations().tested();
  if (job.bounds().splits && done() && (!tested || tested->version != step)) {
    return "the run has ended without an evaluation of the test set";
  }
  for (const auto& result : {evaluated, tested}) {
    if (!result) continue;
    const double loss = testing::ModelJob::EvaluationLoss(result->version, result->set);
    if (result->loss == loss) continue;
    return fmt::format("the evaluation of W({}) on the {} set has loss {}: expected {}",
                       result->version, SetName(result->set), result->loss, loss);
  }
  return "";
}

// Each slice of a chunk arrives a single time, and its data has not moved.
std::string ServerProbe::WrongParts(const testing::ModelJob& job) const {
  const PartialGradients& gradients = run().parts().engine.aggregator.gradients();
  for (size_t c = 0; c < job.chunks().size(); ++c) {
    std::vector<int> times(static_cast<size_t>(job.plan().slices));
    for (const PartialGradients::Part& part : gradients.parts(c)) {
      const Range range = Covers(part.node, job.plan().slices);
      for (int64_t slice = range.begin; slice < range.end; ++slice) {
        if (++times[static_cast<size_t>(slice)] == 1) continue;
        return fmt::format("slice {} of chunk {} of step {} has arrived twice", slice, c, step());
      }
      if (part.payload.data == nullptr) continue;
      const auto must =
          job.Gradient(step(), part.node).subspan(job.chunks()[c].begin, job.chunks()[c].floats());
      if (std::ranges::equal(part.payload.floats(), must)) continue;
      return fmt::format(
          "the gradient of subtree {}.{} of chunk {} of step {} differs from the "
          "undisturbed run, or was overwritten before it was added",
          part.node.level, part.node.index, c, step());
    }
    if (gradients.Complete(c) && std::ranges::count(times, 1) != std::ssize(times)) {
      return fmt::format("chunk {} of step {} counts as complete but lacks a slice", c, step());
    }
  }
  return "";
}

}  // namespace muster
