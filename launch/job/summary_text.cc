#include "launch/job/summary_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <numeric>
#include <utility>

#include "common/base/join.h"
#include "launch/job/bottleneck.h"
#include "launch/job/job_row.h"
#include "launch/job/member_text.h"
#include "launch/job/model_text.h"
#include "launch/job/server_loss.h"
#include "launch/text/units.h"

namespace muster {
namespace {

// Whole percents of shares whose sum is at most 1, so that what is shown never adds up to more than
// 100: each is rounded down, and what that leaves goes to those that lost most.
std::vector<int> WholePercents(const std::vector<double>& shares) {
  std::vector<int> percents;
  std::vector<std::pair<double, size_t>> lost;
  double sum = 0;
  for (const double share : shares) {
    percents.push_back(static_cast<int>(100 * share));
    lost.emplace_back(100 * share - percents.back(), percents.size() - 1);
    sum += 100 * share;
  }
  std::ranges::stable_sort(lost, std::greater{}, &std::pair<double, size_t>::first);
  int left =
      static_cast<int>(std::lround(sum)) - std::accumulate(percents.begin(), percents.end(), 0);
  for (const auto& [loss, index] : lost) percents[index] += left-- > 0 ? 1 : 0;
  return percents;
}

// Of which of the steps the times are, if not of most of them.
std::string TimedText(const events::Summary& summary) {
  const int64_t timed = summary.measured().timed_steps(), steps = summary.steps();
  if (!summary.measured().has_timed_steps() || 2 * timed >= steps) return "";
  std::vector<std::string> why;
  if (summary.steps_before() > 0) why.emplace_back("came before the run was resumed");
  if (2 * timed < steps - summary.steps_before()) why.emplace_back("began during an evaluation");
  return fmt::format("; of {} of {}, since the others {}", FormatCount(timed),
                     Plural(steps, "step"), Join(why, " or "));
}

// The parts of a step, each with its share; what they leave of the step is "other".
std::vector<std::string> StepLines(const events::Summary& summary) {
  const events::Measured& measured = summary.measured();
  const double step = measured.step_ms();
  if (step <= 0) return {};
  std::vector<std::string> lines{Row("step", FormatMilliseconds(step) + TimedText(summary))};
  if (measured.has_timed_steps() && measured.timed_steps() == 0) return lines;
  std::vector<std::pair<const char*, double>> parts;
  double sum = 0;
  const auto add = [&](const char* name, bool known, double ms) {
    if (!known) return;
    parts.emplace_back(name, ms);
    sum += ms;
  };
  const events::StepParts& ms = measured.parts();
  add("input", ms.has_input_ms(), ms.input_ms());
  add("compute", ms.has_compute_ms(), ms.compute_ms());
  add("push", ms.has_push_ms(), ms.push_ms());
  add("wait", ms.has_wait_ms(), ms.wait_ms());
  add("pull", ms.has_pull_ms(), ms.pull_ms());
  if (!parts.empty() && step - sum > 0.01 * step) parts.emplace_back("other", step - sum);
  // Two clocks: a worker's and the server's, which may see a step end a little earlier. No more is
  // shown of the parts than the step has.
  std::vector<double> shares;
  for (auto& [name, part_ms] : parts) {
    part_ms *= step / std::max(step, sum);
    shares.push_back(part_ms / step);
  }
  const std::vector<int> percents = WholePercents(shares);
  for (size_t i = 0; i < parts.size(); ++i) {
    lines.push_back(Row("", fmt::format("{:<8} {:>9}  {:>3} %", parts[i].first,
                                        FormatMilliseconds(parts[i].second), percents[i])));
  }
  return lines;
}

// What the parameter server costs, and, apart from it, what ranks of different speed cost.
std::string BalanceText(const events::StepShares& shares, int workers) {
  if (!shares.has_overhead() || !shares.has_imbalance()) return "";
  std::string text = fmt::format("{} of a step beyond the slowest rank's compute",
                                 FormatPercent(std::max(0.0, shares.overhead()), 1));
  if (workers > 1) {
    text += fmt::format("; imbalance between ranks {}", FormatPercent(shares.imbalance(), 1));
  }
  return text;
}

std::string TestText(const events::Summary& summary) {
  const events::TestResult& test = summary.test();
  if (!test.has_accuracy()) return "";
  std::string text = FormatPercent(test.accuracy(), 2);
  if (summary.has_best_test_accuracy()) {
    text += fmt::format(" (best {}", FormatPercent(summary.best_test_accuracy(), 2));
    text += summary.has_best_step() ? fmt::format(" at step {})", FormatCount(summary.best_step()))
                                    : ")";
  }
  if (test.has_top5_accuracy()) text += ", top 5 " + FormatPercent(test.top5_accuracy(), 2);
  if (test.has_loss()) text += fmt::format(", test loss {:.4f}", test.loss());
  return text;
}

std::string SpeedText(double images_per_second, int workers) {
  std::string text = FormatRate(images_per_second) + " images/s";
  if (workers > 1) text += fmt::format(", {} per worker", FormatRate(images_per_second / workers));
  return text;
}

}  // namespace

std::vector<std::string> SummaryLines(const events::Summary& summary, int workers, bool on_gpus,
                                      const RunDir& dir, const std::string& files,
                                      const std::map<int64_t, std::string>& ends) {
  std::vector<std::string> lines;
  auto row = [&](const char* label, const std::string& text) {
    if (!text.empty()) lines.push_back(Row(label, text));
  };
  const events::Measured& measured = summary.measured();
  std::string done = Plural(std::max<int64_t>(0, summary.steps()), "step");
  if (summary.at().has_samples()) done += ", " + Plural(summary.at().samples(), "image");
  const bool completed = summary.end() == events::Summary::COMPLETED;
  lines.push_back(fmt::format("{}: {} in {}", completed ? "Completed" : "Ended early", done,
                              FormatDuration(summary.at().elapsed_s())));

  row("stopped early", summary.stop_reason());
  for (const std::string& text : ChangesTexts(summary, ends)) row("workers", text);
  row("shares", SharesText(summary));
  row("test accuracy", TestText(summary));
  if (measured.has_train_loss()) row("training loss", fmt::format("{:.4f}", measured.train_loss()));
  if (measured.skipped_steps() > 0) {
    row("skipped", Plural(measured.skipped_steps(), "step") + ": a value was not finite");
  }
  if (measured.has_images_per_second())
    row("speed", SpeedText(measured.images_per_second(), workers));
  for (std::string& line : StepLines(summary)) lines.push_back(std::move(line));
  row("overhead", BalanceText(measured.shares(), workers));
  for (const BottleneckRow& line : Bottleneck(summary, on_gpus)) row(line.label.c_str(), line.text);
  row("restarts", RestartsText(summary));
  row("weights hash", summary.weights_hash());
  for (const std::string& text : ModelTexts(summary, dir)) row("weights", text);
  row("run directory", dir.shown());
  row("run files", files);
  if (summary.has_checkpoint()) {
    const std::filesystem::path path = summary.checkpoint();
    const bool here = path.parent_path().parent_path() == std::filesystem::path(dir.path());
    // How a run goes on that was not completed is said below; not, that it is kept elsewhere.
    if (completed || !here)
      row("checkpoint", here ? "checkpoints/" + path.filename().string() : path.string());
  }
  Fit(lines);
  return lines;
}

}  // namespace muster
