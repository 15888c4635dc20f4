#include "cli/job/summary.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <numeric>
#include <utility>

#include "cli/job/bottleneck.h"
#include "cli/job/job_display.h"
#include "cli/text/units.h"
#include "cli/text/wrapped.h"
#include "common/base/text.h"
#include "common/checkpoint/list_checkpoints.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// Converts shares, whose sum is at most 1, to whole percents, whose sum is at most 100: each share
// is rounded down, and the remainder goes to those that lost most.
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

// Names the timed steps if they are at most half of all.
std::string TimedText(const events::Summary& summary) {
  const int64_t timed = summary.measured().timed_steps(), steps = summary.steps();
  if (!summary.measured().has_timed_steps() || 2 * timed >= steps) return "";
  std::vector<std::string> why;
  if (summary.steps_before() > 0) why.emplace_back("came before the run was resumed");
  if (2 * timed < steps - summary.steps_before()) why.emplace_back("began during an evaluation");
  return fmt::format("; from {} of {}, because the others {}", FormatCount(timed),
                     Plural(steps, "step"), Join(why, " or "));
}

// Lists the parts of a step as shares of its time, the largest first. The rest of the step is
// "other".
std::string StepText(const events::Summary& summary) {
  const events::Measured& measured = summary.measured();
  const double step = measured.step_ms();
  if (step <= 0) return "";
  std::string text = FormatMilliseconds(step) + TimedText(summary);
  if (measured.has_timed_steps() && measured.timed_steps() == 0) return text;
  std::vector<std::pair<std::string, double>> parts;
  double sum = 0;
  const events::StepParts& ms = measured.parts();
  for (int i = 0; i < ms.GetDescriptor()->field_count(); ++i) {
    const auto* const field = ms.GetDescriptor()->field(i);
    if (!ms.GetReflection()->HasField(ms, field)) continue;
    const std::string name = field->name().substr(0, field->name().find('_'));  // compute_ms
    parts.emplace_back(name, ms.GetReflection()->GetDouble(ms, field));
    sum += parts.back().second;
  }
  if (!parts.empty() && step - sum > 0.01 * step) parts.emplace_back("other", step - sum);
  std::ranges::stable_sort(parts, std::greater{}, &std::pair<std::string, double>::second);
  // Workers and the server use different clocks, so the parts may add up to more than the step.
  std::vector<double> shares;
  shares.reserve(parts.size());
  for (const auto& [name, part_ms] : parts) shares.push_back(part_ms / std::max(step, sum));
  const std::vector<int> percents = WholePercents(shares);
  std::vector<std::string> texts;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (percents[i] > 0) texts.push_back(fmt::format("{} {} %", parts[i].first, percents[i]));
  }
  return texts.empty() ? text : text + ": " + Join(texts, ", ");
}

// Whether a complete run has learned nothing.
bool IsChance(const events::Summary& summary, int64_t classes) {
  constexpr double kSomewhatBetter = 1.1;
  return classes > 1 && summary.end() == events::Summary::COMPLETED &&
         summary.has_best_accuracy() &&
         summary.best_accuracy() * static_cast<double>(classes) < kSomewhatBetter;
}

// Describes the cost of the parameter server and, separately, of ranks of different speed.
std::string BalanceText(const events::StepShares& shares, int workers) {
  if (!shares.has_overhead() || !shares.has_imbalance()) return "";
  std::string text = FormatPercent(std::max(0.0, shares.overhead()), 1) + " of a step";
  if (workers > 1) {
    text += fmt::format(", imbalance between ranks {}", FormatPercent(shares.imbalance(), 1));
  }
  return text;
}

// ", accuracy 0.913, perplexity 4.2", or ", top 5 98.40 %"
std::string ScalarsText(const google::protobuf::RepeatedPtrField<events::Scalar>& scalars) {
  std::string text;
  for (const events::Scalar& scalar : scalars) text += ", " + ScalarText(scalar);
  return text;
}

// `chooses`: the scores on this set decide which weights are the best.
std::string ScoresText(const events::Summary& summary, const events::Scores& scores, bool chooses) {
  if (!scores.has_loss() && !scores.has_accuracy()) return "";
  if (!scores.has_accuracy()) {  // the targets are values
    std::string text = fmt::format("{:.4f}", scores.loss());
    if (chooses && summary.has_best_step()) {
      text += ", lowest at step " + FormatCount(summary.best_step());
    }
    return text + ScalarsText(scores.scalars());
  }
  std::string text = FormatPercent(scores.accuracy(), 2);
  if (chooses && summary.has_best_accuracy()) {
    text += ", best " + FormatPercent(summary.best_accuracy(), 2);
    if (summary.has_best_step()) text += " at step " + FormatCount(summary.best_step());
  }
  text += ScalarsText(scores.scalars());
  if (scores.has_loss()) text += fmt::format(", loss {:.4f}", scores.loss());
  return text;
}

std::string SpeedText(double images_per_second, int workers, const char* sample) {
  std::string text = fmt::format("{} {}s/s", FormatRate(images_per_second), sample);
  if (workers > 1) text += fmt::format(", {} per worker", FormatRate(images_per_second / workers));
  return text;
}

// "model.safetensors (step 120), best.safetensors (step 80, 98.40 %)"
std::string ModelsText(const events::Summary& summary) {
  std::vector<std::string> texts;
  for (const events::Summary::Model& model : summary.models()) {
    std::string text =
        fmt::format("{} ({}step {}", model.file(), model.average() ? "moving average, " : "",
                    FormatCount(model.step()));
    const bool best = fs::path(model.file()).filename().string().starts_with("best");
    const double accuracy =
        model.has_validation_accuracy() ? model.validation_accuracy() : model.test_accuracy();
    if (best && (model.has_validation_accuracy() || model.has_test_accuracy())) {
      text += ", " + FormatPercent(accuracy, 2);
    }
    texts.push_back(text + ")");
  }
  return Join(texts, ", ");
}

using Change = events::MemberChange;

constexpr size_t kMostNamed = 3;

// "rank 1, step 120: killed by SIGKILL; rank 0, step 300: …; and 2 more"
std::string Named(const events::Summary& summary, Change::Kind kind, int64_t count,
                  const std::map<int64_t, std::string>& ends) {
  std::string text;
  size_t named = 0;
  for (const Change& change : summary.changes()) {
    if (change.kind() != kind || named == kMostNamed) continue;
    ++named;
    const auto end = ends.find(change.pid());
    const bool knows = kind == Change::LOST && end != ends.end() && !end->second.empty();
    std::string why = knows ? end->second : change.why();
    if (kind == Change::FENCED) why.clear();
    text += fmt::format("{}rank {}, step {}{}", text.empty() ? "" : "; ", change.rank(),
                        FormatCount(change.at().step()), why.empty() ? "" : ": " + why);
  }
  const int64_t more = count - static_cast<int64_t>(named);
  if (more > 0) text += fmt::format("; and {} more", FormatCount(more));
  return text;
}

// The number of lost workers whose rank another worker took over. Workers that join after a reset,
// after leaving, or as additional ones do not count.
int64_t Replaced(const events::Summary& summary) {
  std::map<int64_t, Change::Kind> last;  // last change of each rank
  int64_t losses = 0, replaced = 0;
  for (const Change& change : summary.changes()) {
    const auto before = last.find(change.rank());
    const bool was_lost = before != last.end() && before->second == Change::LOST;
    if (change.kind() == Change::JOINED && was_lost) ++replaced;
    if (change.kind() == Change::LOST) ++losses;
    last[change.rank()] = change.kind();
  }
  if (losses == summary.workers_lost()) return replaced;
  // The summary does not list all changes, so estimate.
  return std::max<int64_t>(0, summary.workers_joined() - summary.workers_fenced());
}

// The step of the newest checkpoint, if the run has one.
std::optional<int64_t> KeptStep(const std::optional<events::Summary>& summary, const KeptRun& run) {
  // Checkpoints that the server wrote may have been removed since then.
  const std::vector<CheckpointName> names = ListCheckpoints(run.dir.path());
  if (names.empty()) return std::nullopt;
  return summary && summary->has_checkpoint() ? summary->checkpoint_step() : names.front().step;
}

// Whether the run directory was removed.
bool IsGone(const KeptRun& run) {
  std::error_code ignored;
  return !fs::exists(run.dir.ConfigPath(), ignored);
}

std::string ResumeCommand(const KeptRun& run) {
  return fmt::format("muster {} --resume {}{}{}", run.by_hand ? "server" : "launch",
                     ShellWord(run.dir.shown()), run.hosts.empty() ? "" : " ", run.hosts);
}

std::string RepeatCommand(const KeptRun& run) {
  return fmt::format("muster {} {} --run-dir DIR{}{}", run.by_hand ? "server" : "launch",
                     ShellWord(run.dir.shown() + "/config.txtpb"), run.hosts.empty() ? "" : " ",
                     run.hosts);
}

bool HasWeights(const events::Summary& summary) {
  for (const auto& model : summary.models()) {
    if (!fs::path(model.file()).filename().string().starts_with("best")) return true;
  }
  return false;
}

// Describes how to get what could not be saved.
std::string HowToMend(const events::Summary& summary, const KeptRun& run) {
  const std::optional<int64_t> kept = KeptStep(summary, run);
  if (kept && *kept == summary.at().step() && summary.end() == events::Summary::COMPLETED) {
    return "fix that, then write what is missing with: " + ResumeCommand(run);
  }
  if (kept) {
    return fmt::format("fix that, then resume from step {} with the same bits: {}",
                       FormatCount(*kept), ResumeCommand(run));
  }
  if (IsGone(run)) {
    return fmt::format(
        "{} was removed during the run, so the run cannot be resumed: start it again from your "
        "config",
        run.dir.shown());
  }
  return fmt::format(
      "{}, so the run cannot be resumed; repeat it in another directory to get the same bits: {}",
      HasWeights(summary) ? "it has no checkpoint" : "its weights are not saved",
      RepeatCommand(run));
}

std::string SharesText(const events::Summary& summary) {
  if (!summary.has_shares()) return "";
  const events::SharesChanged& last = summary.shares();
  constexpr int kMostRanks = 12;
  std::string text;
  for (int i = 0; i < std::min(last.shares_size(), kMostRanks); ++i) {
    text += fmt::format("{}rank {} {}", i == 0 ? "" : ", ", last.shares(i).rank(),
                        FormatCount(last.shares(i).slices()));
    if (i == 0) text += " slices";
  }
  if (last.shares_size() > kMostRanks) {
    text += fmt::format(" and {} more", last.shares_size() - kMostRanks);
  }
  const int64_t count = summary.shares_changed();
  return fmt::format("changed {}; since step {}: {}",
                     count == 1 ? "once" : fmt::format("{} times", FormatCount(count)),
                     FormatCount(last.from_step()), text);
}

std::string Where(const events::Restarted& restart) {
  const std::string step = restart.has_lost_at_step()
                               ? "at step " + FormatCount(restart.lost_at_step())
                               : "before its first step";
  return fmt::format("{} ({})", step, restart.cause());
}

}  // namespace

std::string RestartsText(const events::Summary& summary) {
  constexpr int kMostTold = 3;  // the rest is in metrics.jsonl
  const int count = summary.restarts_size();
  if (count == 0) return "";
  if (count == 1) {
    return fmt::format("the server was lost {} and restarted once, from step {}",
                       Where(summary.restarts(0)), FormatCount(summary.restarts(0).from_step()));
  }
  std::vector<std::string> told;
  for (int i = std::max(0, count - kMostTold); i < count; ++i) {
    told.push_back(fmt::format("{} from step {}", Where(summary.restarts(i)),
                               FormatCount(summary.restarts(i).from_step())));
  }
  return fmt::format("the server was lost and restarted {} times: {}{}",
                     FormatCount(int64_t{count}), count > kMostTold ? "… " : "", Join(told, ", "));
}

std::vector<std::string> ChangesTexts(const events::Summary& summary,
                                      const std::map<int64_t, std::string>& ends) {
  std::vector<std::string> texts;
  if (const int64_t lost = summary.workers_lost(); lost > 0) {
    const int64_t came = Replaced(summary);
    const char* const what = came >= lost ? "lost and replaced"
                             : came > 0   ? "lost, some replaced"
                                          : "lost";
    texts.push_back(fmt::format("{} {} ({})", Plural(lost, "worker"), what,
                                Named(summary, Change::LOST, lost, ends)));
  }
  if (const int64_t fenced = summary.workers_fenced(); fenced > 0) {
    texts.push_back(fmt::format("reset {} for being slow ({})",
                                fenced == 1 ? "once" : fmt::format("{} times", FormatCount(fenced)),
                                Named(summary, Change::FENCED, fenced, {})));
  }
  if (const int64_t left = summary.workers_left(); left > 0) {
    texts.push_back(
        fmt::format("{} left ({})", FormatCount(left), Named(summary, Change::LEFT, left, {})));
  }
  return texts;
}

std::string OtherBitsText(const events::Summary& summary) {
  constexpr int kMost = 5;
  if (summary.other_bits().empty()) return "";
  const int shown = std::min(kMost, summary.other_bits_size());
  const auto begin = summary.other_bits().begin();
  std::string text = "may differ in other runs, because of " +
                     Join(std::vector<std::string>(begin, begin + shown), ", ");
  if (shown < summary.other_bits_size())
    text += fmt::format(" and {} more", summary.other_bits_size() - shown);
  return text;
}

std::vector<std::string> SummaryLines(const events::Summary& summary, int workers,
                                      const KeptRun& run,
                                      const std::map<int64_t, std::string>& ends) {
  std::vector<std::string> lines;
  const auto row = [&](const char* label, const std::string& text) {
    if (!text.empty()) lines.push_back(Row(label, text));
  };
  const events::Measured& measured = summary.measured();
  std::string done = Plural(std::max<int64_t>(0, summary.steps()), "step");
  if (summary.at().has_samples()) done += ", " + Plural(summary.at().samples(), run.sample);
  const bool completed = summary.end() == events::Summary::COMPLETED;
  lines.push_back(fmt::format("{}: {} in {}{}", completed ? "Completed" : "Ended early", done,
                              FormatDuration(summary.at().elapsed_s()),
                              summary.restarts_size() > 0 ? ", not counting lost steps" : ""));
  if (summary.has_validation()) {
    row("validation", (summary.validation().has_accuracy() ? "accuracy " : "loss ") +
                          ScoresText(summary, summary.validation(), true));
  }
  row(summary.test().has_accuracy() ? "test accuracy" : "test loss",
      ScoresText(summary, summary.test(), !summary.has_validation()));
  if (measured.has_train_loss()) {
    row("training loss",
        fmt::format("{:.4f}", measured.train_loss()) + ScalarsText(measured.scalars()));
  }
  const auto is_bad = [](const events::Scores& scores) {
    return scores.has_loss() && !std::isfinite(scores.loss());
  };
  if (is_bad(summary.validation()) || is_bad(summary.test())) {
    row("warning",
        "a loss is not finite: outputs or targets of some samples are not, or too large");
  }
  if (IsChance(summary, run.classes)) {
    row("hint", fmt::format("no better than chance among {} classes: see docs/RECIPES.md, If "
                            "training does not converge",
                            run.classes));
  }
  row("stopped early", summary.stop_reason());
  for (const std::string& text : ChangesTexts(summary, ends)) row("workers", text);
  row("restarts", RestartsText(summary));
  row("shares", SharesText(summary));
  if (measured.skipped_steps() > 0) {
    row("skipped", Plural(measured.skipped_steps(), "step") + ": a value was not finite");
  }
  if (measured.has_images_per_second())
    row("speed", SpeedText(measured.images_per_second(), workers, run.sample));
  const std::string limit = Bottleneck(summary, run.on_gpus, run.crowd, run.could_use_bf16);
  // That workers on CPUs mostly compute is what one expects.
  if (run.verbose || run.on_gpus || !limit.starts_with("compute")) {
    row("step", StepText(summary));
    row("overhead", BalanceText(measured.shares(), workers));
    row("limit", limit);
  }
  row("weights hash", summary.weights_hash());
  row("bits", OtherBitsText(summary));
  row("weights", ModelsText(summary));
  row("run directory", run.dir.shown());
  FitRows(lines);
  return lines;
}

std::string TraceLine(const std::string& path, size_t spans, uint64_t dropped) {
  std::string text = fmt::format("{}, {}", path, Plural(static_cast<int64_t>(spans), "span"));
  if (dropped > 0) {
    text += fmt::format(" ({} more did not fit: trace fewer steps)",
                        FormatCount(static_cast<int64_t>(dropped)));
  }
  return Row("trace",
             text + "; open it in https://ui.perfetto.dev, or: muster trace " + ShellWord(path));
}

std::string GoOnText(const std::optional<events::Summary>& summary, const KeptRun& run) {
  const std::optional<int64_t> kept = KeptStep(summary, run);
  if (!kept) {
    return fmt::format("{} {}: the run cannot be resumed.", run.dir.shown(),
                       IsGone(run) ? "was removed during the run" : "holds no checkpoint");
  }
  return fmt::format("To resume from step {}: {}", FormatCount(*kept), ResumeCommand(run));
}

std::string TroubleText(const events::Summary& summary, const KeptRun& run) {
  return fmt::format("not all of the run could be saved: {}; {}", summary.trouble(),
                     HowToMend(summary, run));
}

}  // namespace muster
