#include "launch/job/progress_line.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "launch/text/units.h"

namespace muster {
namespace {

constexpr const char* kGap = "  ";

// A part of the line; the one with the largest rank is the first to go.
struct Part {
  int rank;
  std::string text;
};

std::string StepText(const Progress& p) {
  if (p.step < 0) return "";
  std::string text = fmt::format("step {}", FormatCount(p.step));
  if (p.total_steps > 0) text += fmt::format("/{}", FormatCount(p.total_steps));
  return text;
}

std::string EpochText(const Progress& p) {
  if (!std::isfinite(p.epoch)) return "";
  std::string text = fmt::format("epoch {:.2f}", p.epoch);
  if (std::isfinite(p.epochs)) text += fmt::format("/{:.4g}", p.epochs);
  return text;
}

std::string EvaluatingText(const Progress& p) {
  if (!p.evaluating) return "";
  if (p.blocks_total <= 0) return "evaluating";
  return fmt::format("evaluating {}/{}", FormatCount(std::max<int64_t>(0, p.blocks_done)),
                     FormatCount(p.blocks_total));
}

std::vector<Part> Parts(const Progress& p) {
  std::vector<Part> parts;
  auto add = [&](int rank, std::string text) {
    if (!text.empty()) parts.push_back({rank, std::move(text)});
  };
  add(0, EvaluatingText(p));
  add(1, StepText(p));
  add(4, EpochText(p));
  if (std::isfinite(p.train_loss)) add(2, fmt::format("loss {:.3f}", p.train_loss));
  if (std::isfinite(p.train_accuracy)) add(5, "accuracy " + FormatPercent(p.train_accuracy, 1));
  if (p.evaluating) return parts;  // speed and time left are about training
  if (std::isfinite(p.images_per_second)) {
    add(3, FormatRate(p.images_per_second) + " images/s");
  }
  if (std::isfinite(p.eta_s) && p.eta_s >= 0) add(6, FormatDuration(p.eta_s) + " left");
  if (std::isfinite(p.waiting_share)) add(7, "waiting " + FormatPercent(p.waiting_share));
  return parts;
}

std::string Join(const std::vector<Part>& parts) {
  std::string line;
  for (const Part& part : parts) line += (line.empty() ? "" : kGap) + part.text;
  return line;
}

}  // namespace

std::string FitTo(const std::string& text, int width) {
  if (width < 0 || text.size() <= static_cast<size_t>(width)) return text;
  if (width < 3) return text.substr(0, static_cast<size_t>(width));
  return text.substr(0, static_cast<size_t>(width) - 2) + "..";
}

std::string ProgressLine(const Progress& progress, int width) {
  std::vector<Part> parts = Parts(progress);
  std::string line = Join(parts);
  while (parts.size() > 1 && line.size() > static_cast<size_t>(std::max(0, width))) {
    parts.erase(std::max_element(parts.begin(), parts.end(),
                                 [](const Part& a, const Part& b) { return a.rank < b.rank; }));
    line = Join(parts);
  }
  return FitTo(line, std::max(0, width));
}

std::string LogLine(const Progress& p) {
  std::string total = p.total_steps > 0 ? FormatCount(p.total_steps) : "";
  std::string line = fmt::format("step {:>{}}", FormatCount(std::max<int64_t>(0, p.step)),
                                 std::max<size_t>(5, total.size()));
  if (!total.empty()) line += fmt::format("/{}", total);
  if (std::isfinite(p.epoch)) line += fmt::format("  epoch {:>6.2f}", p.epoch);
  if (std::isfinite(p.epochs)) line += fmt::format("/{:.4g}", p.epochs);
  if (std::isfinite(p.train_loss)) line += fmt::format("  loss {:>6.3f}", p.train_loss);
  if (std::isfinite(p.train_accuracy)) {
    line += fmt::format("  accuracy {:>6}", FormatPercent(p.train_accuracy, 1));
  }
  if (std::isfinite(p.images_per_second)) {
    line += fmt::format("  {:>6} images/s", FormatRate(p.images_per_second));
  }
  if (std::isfinite(p.step_ms)) line += fmt::format("  {:>7}/step", FormatMilliseconds(p.step_ms));
  if (std::isfinite(p.waiting_share)) {
    line += fmt::format("  waiting {:>4}", FormatPercent(p.waiting_share));
  }
  if (std::isfinite(p.eta_s) && p.eta_s >= 0) line += "  " + FormatDuration(p.eta_s) + " left";
  return line;
}

std::string EvaluationLine(const Progress& p) {
  std::string line = "evaluation";
  if (std::isfinite(p.epoch)) line += fmt::format("  epoch {:.2f}", p.epoch);
  if (p.step >= 0) line += "  step " + FormatCount(p.step);
  if (std::isfinite(p.test_accuracy)) {
    line += "  test accuracy " + FormatPercent(p.test_accuracy, 2);
  }
  if (std::isfinite(p.test_top5_accuracy)) {
    line += "  top 5 " + FormatPercent(p.test_top5_accuracy, 2);
  }
  if (std::isfinite(p.test_loss)) line += fmt::format("  test loss {:.4f}", p.test_loss);
  if (std::isfinite(p.elapsed_s)) line += "  after " + FormatDuration(p.elapsed_s);
  return line;
}

}  // namespace muster
