#include "cli/job/repeat.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <utility>

#include "cli/text/console.h"
#include "cli/text/measure.h"
#include "cli/text/text_table.h"
#include "cli/text/units.h"
#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/json.h"

namespace muster {
namespace {

// The scores on the test set or, without one, on the validation set.
const events::Scores& ScoresOf(const events::Summary& summary) {
  return summary.has_test() ? summary.test() : summary.validation();
}
std::optional<double> ScoreOf(const events::Summary& summary, const Measure& measure) {
  const events::Scores& scores = ScoresOf(summary);
  if (measure.is_loss) return scores.has_loss() ? std::optional(scores.loss()) : std::nullopt;
  return scores.has_accuracy() ? std::optional(scores.accuracy()) : std::nullopt;
}
double BestAccuracy(const events::Summary& summary) {
  return summary.has_best_accuracy() ? summary.best_accuracy() : NAN;
}
double ImagesPerSecond(const events::Summary& summary) {
  return summary.measured().has_images_per_second() ? summary.measured().images_per_second() : NAN;
}

// Whether the run reached its end. With kFailure, some of its results could not be written.
bool IsCompleted(const RepeatedRun& run) {
  return run.exit_code == 0 || (run.exit_code == static_cast<int>(ExitCode::kFailure) &&
                                run.summary && run.summary->end() == events::Summary::COMPLETED);
}

std::string ResultText(const RepeatedRun& run) {
  if (run.exit_code == 0) return "completed";
  return fmt::format("{}exit code {}", IsCompleted(run) ? "completed, " : "", run.exit_code);
}

// The spread of `number` over the completed runs. A run without a summary counts as NaN.
Spread SpreadOfCompleted(std::span<const RepeatedRun> runs, const auto& number) {
  std::vector<double> values;
  for (const RepeatedRun& run : runs) {
    if (IsCompleted(run)) values.push_back(run.summary ? number(*run.summary) : NAN);
  }
  return SpreadOf(values);
}

nlohmann::ordered_json SpreadJson(const Spread& spread) {
  // A number that is not finite becomes null.
  return {{"runs", spread.count}, {"mean", spread.mean}, {"deviation", spread.deviation}};
}

// The measure by which the runs of a series are compared.
Measure MeasureOf(std::span<const RepeatedRun> runs) {
  Measure measure;
  for (const RepeatedRun& run : runs) {
    if (!run.summary) continue;
    const events::Scores& scores = ScoresOf(*run.summary);
    if (run.summary->has_validation() && !run.summary->has_test()) measure.on_validation = true;
    if (scores.has_loss() && !scores.has_accuracy()) measure.is_loss = true;
  }
  return measure;
}

Spread ScoresOfCompleted(std::span<const RepeatedRun> runs, const Measure& measure) {
  return SpreadOfCompleted(runs, [&](const events::Summary& summary) {
    return ScoreOf(summary, measure).value_or(NAN);
  });
}

// The best accuracy or, if runs are compared by loss, the step of the lowest loss.
std::string BestText(const events::Summary& summary, bool is_loss) {
  if (!is_loss) return FormatPercent(BestAccuracy(summary), 2);
  return summary.has_best_step() ? "step " + FormatCount(summary.best_step()) : "-";
}

// Uses the keys of metrics.jsonl.
void PutSummary(nlohmann::ordered_json& json, const events::Summary& summary) {
  if (summary.has_steps()) json["steps"] = summary.steps();
  const events::Scores &test = summary.test(), &validation = summary.validation();
  if (validation.has_accuracy()) json["validation_accuracy"] = validation.accuracy();
  if (test.has_accuracy()) json["test_accuracy"] = test.accuracy();
  if (summary.has_best_accuracy()) {
    json[summary.has_validation() ? "best_validation_accuracy" : "best_test_accuracy"] =
        summary.best_accuracy();
  }
  if (summary.has_best_step()) json["best_step"] = summary.best_step();
  if (validation.has_loss()) json["validation_loss"] = validation.loss();
  if (test.has_loss()) json["test_loss"] = test.loss();
  if (summary.measured().has_images_per_second()) {
    json["images_per_second"] = summary.measured().images_per_second();
  }
  json["stopped_early"] = !summary.stop_reason().empty();
  json["weights_hash"] = summary.weights_hash();
}

std::string SpreadText(const Spread& spread, const auto& format) {
  if (spread.count == 0) return "-";
  if (spread.count == 1) return format(spread.mean) + " (one run: no deviation)";
  return fmt::format("{} ± {} ({} runs)", format(spread.mean), format(spread.deviation),
                     spread.count);
}

}  // namespace

Spread SpreadOf(std::span<const double> values) {
  Spread spread{0, NAN, NAN};
  double sum = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    sum += value;
    ++spread.count;
  }
  if (spread.count == 0) return spread;
  const double n = static_cast<double>(spread.count);
  spread.mean = sum / n;
  if (spread.count == 1) return spread;
  double squares = 0;
  for (const double value : values) {
    if (std::isfinite(value)) squares += (value - spread.mean) * (value - spread.mean);
  }
  spread.deviation = std::sqrt(squares / (n - 1));
  return spread;
}

std::vector<std::string> RepeatLines(std::span<const RepeatedRun> runs) {
  const Measure measure = MeasureOf(runs);
  const std::string label = measure.Name();
  const auto text = [&](double value) { return measure.Text(value); };
  const bool validates = std::ranges::any_of(
      runs, [](const RepeatedRun& run) { return run.summary && run.summary->has_validation(); });
  TextTable table({{"seed", true},
                   {label, true},
                   {validates ? "best val." : "best", true},
                   {"samples/s", true},
                   {"steps", true},
                   {"result"},
                   {"run directory"}});
  for (const RepeatedRun& run : runs) {
    const events::Summary summary = run.summary.value_or(events::Summary());
    const std::optional<double> score = ScoreOf(summary, measure);
    table.AddRow({std::to_string(run.seed), score ? text(*score) : "-",
                  BestText(summary, measure.is_loss), FormatRate(ImagesPerSecond(summary)),
                  summary.has_steps() ? FormatCount(summary.steps()) : "-", ResultText(run),
                  run.dir});
  }
  std::vector<std::string> lines = table.Lines();
  lines.push_back("");
  lines.push_back(
      fmt::format("  {}  {}", label, SpreadText(ScoresOfCompleted(runs, measure), text)));
  lines.push_back(fmt::format("  {:<{}}  {}", "samples/s", label.size(),
                              SpreadText(SpreadOfCompleted(runs, ImagesPerSecond), FormatRate)));
  return lines;
}

std::string RepeatJson(std::span<const RepeatedRun> runs) {
  nlohmann::ordered_json json;
  json["runs"] = nlohmann::ordered_json::array();
  for (const RepeatedRun& run : runs) {
    nlohmann::ordered_json one{
        {"seed", run.seed}, {"run_dir", run.dir}, {"exit_code", run.exit_code}};
    if (run.summary) PutSummary(one, *run.summary);
    json["runs"].push_back(std::move(one));
  }
  const Measure measure = MeasureOf(runs);
  json[measure.Name('_')] = SpreadJson(ScoresOfCompleted(runs, measure));
  json["images_per_second"] = SpreadJson(SpreadOfCompleted(runs, ImagesPerSecond));
  return JsonText(json, 2) + "\n";
}

uint64_t LastSeed(uint64_t first, int repeat) {
  const auto more = static_cast<uint64_t>(repeat - 1);
  if (first <= std::numeric_limits<uint64_t>::max() - more) return first + more;
  throw Error(ExitCode::kUsage, "--repeat {} with seed {}: expected a seed of at most {}", repeat,
              first, std::numeric_limits<uint64_t>::max() - more);
}

namespace {

// One series, from its first run to its table.
class Series {
 public:
  Series(const LaunchArguments& arguments, PreparedJob job, SignalSource& signals)
      : arguments_(arguments),
        job_(std::move(job)),
        signals_(signals),
        base_(RunDir::Make(job_.config.run().dir(), arguments.config_path)) {}

  int Run() {
    const uint64_t first = job_.config.run().seed();
    try {
      CheckUnused(first);
      for (int i = 0; i < arguments_.repeat && !ended_; ++i) {
        const uint64_t seed = first + static_cast<uint64_t>(i);
        Print({fmt::format("{}run {} of {}: seed {}", i == 0 ? "" : "\n", i + 1, arguments_.repeat,
                           seed)});
        RunOne(seed);
        WriteResults();  // after each run, in case the next one fails
      }
    } catch (const Error&) {
      base_.Discard();  // if it is new and still empty
      throw;
    }
    PrintTable();
    return static_cast<int>(exit_code_);
  }

 private:
  std::string SeedDir(uint64_t seed) const {
    return fmt::format("{}/seed-{}", base_.shown(), seed);
  }

  // Called before the first run, so that the series does not fail at a later one.
  void CheckUnused(uint64_t first) const {
    if (std::filesystem::exists(std::filesystem::symlink_status(base_.RepeatPath()))) {
      throw Error(
          ExitCode::kUsage,
          "the directory {} already holds the repeat.json of another series; choose another "
          "with --run-dir, or move that series away",
          base_.shown());
    }
    for (int i = 0; i < arguments_.repeat; ++i) {
      RunDir::CheckUnused(SeedDir(first + static_cast<uint64_t>(i)));
    }
  }

  // Throws Error if the first run cannot start. If a later one cannot, the series ends.
  void RunOne(uint64_t seed) {
    job_.config = config_;
    job_.config.mutable_run()->set_seed(seed);
    // Each seed splits off different validation images.
    if (job_.data.validation > 0) job_.data = arguments_.count_data(job_.config);
    try {
      if (arguments_.measure) PrintResult(arguments_.measure(job_.config));
      RunDir dir = RunDir::Open(SeedDir(seed));
      JobOutcome outcome = RunJob(arguments_, job_, dir, signals_);
      const int code = static_cast<int>(outcome.exit_code);
      const bool failed = outcome.failure || outcome.stop_signal != 0;
      runs_.push_back({seed, dir.shown(), code, std::move(outcome.summary)});
      // The series continues after a run that reached its end, even if writing its results failed.
      ended_ = failed || !IsCompleted(runs_.back());
      if (exit_code_ == ExitCode::kOk || ended_) exit_code_ = outcome.exit_code;
    } catch (const Error& error) {
      if (runs_.empty()) throw;
      PrintError(fmt::format("muster: error: {}\n", error.what()));
      ended_ = true;
      exit_code_ = error.code();
    }
  }

  void WriteResults() {
    trouble_.clear();
    try {
      WriteFileAtomically(base_.RepeatPath(), RepeatJson(runs_));
    } catch (const Error& error) {
      trouble_ = error.what();
    }
  }

  void PrintTable() {
    std::vector<std::string> lines{
        "", fmt::format("{} of {}:", Plural(std::ssize(runs_), "run"), arguments_.repeat)};
    for (std::string& line : RepeatLines(runs_)) lines.push_back(std::move(line));
    if (trouble_.empty()) lines.push_back("  results        " + base_.shown() + "/repeat.json");
    if (ended_) {
      lines.insert(lines.end(), {"",
                                 "A series cannot be resumed as a whole. The lines above the table "
                                 "show how to resume its last run."});
      if (const auto left = arguments_.repeat - std::ssize(runs_); left > 0) {
        lines.emplace_back("To run the rest, with your other options:");
        lines.push_back(
            fmt::format("  muster launch {} --seed {} --repeat {} --run-dir ANOTHER{}{}",
                        arguments_.has_config ? arguments_.config_path : "", runs_.back().seed + 1,
                        left, arguments_.hosts ? " " + arguments_.hosts->options : "",
                        arguments_.has_config ? "" : " -- COMMAND"));
      }
    }
    Print(lines);
    if (trouble_.empty()) return;
    PrintError(
        fmt::format("muster: error: cannot write the results of the series: {}\n", trouble_));
    if (exit_code_ == ExitCode::kOk) exit_code_ = ExitCode::kFailure;
  }

  // If printing fails, the series continues, but its exit code is not 0.
  void Print(const std::vector<std::string>& lines) {
    Console console(STDOUT_FILENO);
    for (const std::string& line : lines) console.Print(line);
    console.Flush(60);
    if (!console.trouble().empty() && exit_code_ == ExitCode::kOk) exit_code_ = ExitCode::kFailure;
  }

  const LaunchArguments& arguments_;
  PreparedJob job_;
  const config::Config config_ = job_.config;  // as it was before the first run
  SignalSource& signals_;
  RunDir base_;
  std::vector<RepeatedRun> runs_;
  std::string trouble_;  // why the latest results could not be written, or ""
  ExitCode exit_code_ = ExitCode::kOk;
  bool ended_ = false;
};

}  // namespace

int RunSeries(const LaunchArguments& arguments, PreparedJob job, SignalSource& signals) {
  if (!job.config.run().trace_file().empty()) {
    throw Error(ExitCode::kUsage,
                "--repeat cannot be combined with --trace: a series has no single trace");
  }
  (void)LastSeed(job.config.run().seed(), arguments.repeat);
  return Series(arguments, std::move(job), signals).Run();
}

}  // namespace muster
