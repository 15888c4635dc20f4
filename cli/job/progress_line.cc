#include "cli/job/progress_line.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "cli/text/units.h"

namespace muster {
namespace {

constexpr const char* kGap = "  ";

// A part of the line; the one with the largest rank is the first to go.
struct Part {
  int rank;
  std::string text;
};

using events::Measured;
using events::Position;

std::string StepText(const events::Progress& p) {
  if (!p.at().has_step()) return "";
  std::string text = fmt::format("step {}", FormatCount(p.at().step()));
  if (p.total_steps() > 0) text += fmt::format("/{}", FormatCount(p.total_steps()));
  return text;
}

std::string EpochText(const events::Progress& p) {
  if (!p.at().has_epoch()) return "";
  std::string text = fmt::format("epoch {:.2f}", p.at().epoch());
  if (p.has_epochs()) text += fmt::format("/{:.4g}", p.epochs());
  return text;
}

std::string EvaluatingText(const events::Progress& p) {
  if (!p.has_evaluating()) return "";
  if (p.evaluating().total() <= 0) return "evaluating";
  return fmt::format("evaluating {}/{}", FormatCount(std::max<int64_t>(0, p.evaluating().done())),
                     FormatCount(p.evaluating().total()));
}

std::vector<Part> Parts(const events::Progress& p) {
  std::vector<Part> parts;
  auto add = [&](int rank, std::string text) {
    if (!text.empty()) parts.push_back({rank, std::move(text)});
  };
  const Measured& m = p.measured();
  add(0, EvaluatingText(p));
  add(1, StepText(p));
  add(4, EpochText(p));
  if (m.has_train_loss()) add(2, fmt::format("loss {:.3f}", m.train_loss()));
  if (m.has_train_accuracy()) add(5, "accuracy " + FormatPercent(m.train_accuracy(), 1));
  if (p.has_evaluating()) return parts;  // speed and time left are about training
  if (m.has_images_per_second()) add(3, FormatRate(m.images_per_second()) + " images/s");
  if (p.has_eta_s() && p.eta_s() >= 0) add(6, FormatDuration(p.eta_s()) + " left");
  if (m.has_waiting_share()) add(7, "waiting " + FormatPercent(m.waiting_share()));
  return parts;
}

std::string JoinParts(const std::vector<Part>& parts) {
  std::string line;
  for (const Part& part : parts) line += (line.empty() ? "" : kGap) + part.text;
  return line;
}

const char* Word(events::MemberChange::Kind kind) {
  switch (kind) {
    case events::MemberChange::LOST:
      return "Lost";
    case events::MemberChange::LEFT:
      return "Left by";
    case events::MemberChange::JOINED:
      return "Joined by";
    default:
      return "Late and fenced:";
  }
}

}  // namespace

std::string FitTo(const std::string& text, int width) {
  if (width < 0 || text.size() <= static_cast<size_t>(width)) return text;
  if (width < 3) return text.substr(0, static_cast<size_t>(width));
  return text.substr(0, static_cast<size_t>(width) - 2) + "..";
}

std::string ProgressLine(const events::Progress& progress, int width) {
  std::vector<Part> parts = Parts(progress);
  std::string line = JoinParts(parts);
  while (parts.size() > 1 && line.size() > static_cast<size_t>(std::max(0, width))) {
    parts.erase(std::max_element(parts.begin(), parts.end(),
                                 [](const Part& a, const Part& b) { return a.rank < b.rank; }));
    line = JoinParts(parts);
  }
  return FitTo(line, std::max(0, width));
}

std::string IntervalLine(const events::Progress& p) {
  const Position& at = p.at();
  const Measured& m = p.measured();
  std::string total = p.total_steps() > 0 ? FormatCount(p.total_steps()) : "";
  std::string line = fmt::format("step {:>{}}", FormatCount(std::max<int64_t>(0, at.step())),
                                 std::max<size_t>(5, total.size()));
  if (!total.empty()) line += fmt::format("/{}", total);
  if (at.has_epoch()) line += fmt::format("  epoch {:>6.2f}", at.epoch());
  if (p.has_epochs()) line += fmt::format("/{:.4g}", p.epochs());
  if (m.has_train_loss()) line += fmt::format("  loss {:>6.3f}", m.train_loss());
  if (m.has_train_accuracy()) {
    line += fmt::format("  accuracy {:>6}", FormatPercent(m.train_accuracy(), 1));
  }
  if (m.has_images_per_second()) {
    line += fmt::format("  {:>6} images/s", FormatRate(m.images_per_second()));
  }
  if (m.has_step_ms()) line += fmt::format("  {:>7}/step", FormatMilliseconds(m.step_ms()));
  if (m.has_waiting_share()) {
    line += fmt::format("  waiting {:>4}", FormatPercent(m.waiting_share()));
  }
  if (p.has_eta_s() && p.eta_s() >= 0) line += "  " + FormatDuration(p.eta_s()) + " left";
  return line;
}

std::string EvaluationLine(const events::Evaluation& evaluation) {
  const Position& at = evaluation.at();
  const events::TestResult& test = evaluation.test();
  std::string line = "evaluation";
  if (at.has_epoch()) line += fmt::format("  epoch {:.2f}", at.epoch());
  if (at.has_step()) line += "  step " + FormatCount(at.step());
  if (test.has_accuracy()) line += "  test accuracy " + FormatPercent(test.accuracy(), 2);
  if (test.has_top5_accuracy()) line += "  top 5 " + FormatPercent(test.top5_accuracy(), 2);
  if (test.has_loss()) line += fmt::format("  test loss {:.4f}", test.loss());
  if (at.has_elapsed_s()) line += "  after " + FormatDuration(at.elapsed_s());
  return line;
}

std::string ChangeLine(const events::MemberChange& change) {
  std::string text = fmt::format("{} rank {} (pid {}) at step {}", Word(change.kind()),
                                 change.rank(), change.pid(), FormatCount(change.at().step()));
  if (!change.why().empty() && change.kind() != events::MemberChange::FENCED)
    text += ": " + change.why();
  if (change.slices() > 0) text += "; others compute " + Plural(change.slices(), "slice");
  if (change.blocks() > 0) text += "; others evaluate " + Plural(change.blocks(), "block");
  return text + fmt::format("; {} now", Plural(change.workers(), "worker"));
}

}  // namespace muster
