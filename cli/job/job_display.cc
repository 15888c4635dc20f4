#include "cli/job/job_display.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <utility>
#include <vector>

#include "cli/job/bottleneck.h"
#include "cli/job/header.h"
#include "cli/text/measure.h"
#include "cli/text/units.h"
#include "common/base/text.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/plan/metrics.h"

namespace muster {
namespace {

constexpr size_t kMostRanksInALine = 12;

// A part of the line. The part with the largest rank is dropped first.
struct Part {
  int rank;
  std::string text;
};

// With `columns`, the parts have the same width in every line.
std::vector<Part> Parts(const events::Progress& p, bool columns, const char* sample) {
  std::vector<Part> parts;
  const auto add = [&](int rank, bool known, const std::string& text) {
    if (known) parts.push_back({rank, text});
  };
  const auto wide = [&](const std::string& text, size_t width) {
    return fmt::format("{:>{}}", text, columns ? width : 0);
  };
  const events::Position& at = p.at();
  const events::Measured& m = p.measured();
  const std::string total = p.total_steps() > 0 ? FormatCount(p.total_steps()) : "";
  const bool evaluating = p.has_evaluating() && !columns;
  add(0, evaluating,
      p.evaluating().total() <= 0
          ? "evaluating"
          : fmt::format("evaluating {}/{}",
                        FormatCount(std::max<int64_t>(0, p.evaluating().done())),
                        FormatCount(p.evaluating().total())));
  add(1, at.has_step() || columns,
      fmt::format(
          "step {}{}{}",
          wide(FormatCount(std::max<int64_t>(0, at.step())), std::max<size_t>(5, total.size())),
          total.empty() ? "" : "/", total));
  add(4, at.has_epoch(),
      fmt::format("epoch {}{}", wide(fmt::format("{:.2f}", at.epoch()), 6),
                  p.has_epochs() ? fmt::format("/{:.4g}", p.epochs()) : ""));
  add(2, m.has_train_loss(), "loss " + wide(fmt::format("{:.3f}", m.train_loss()), 6));
  add(5, m.has_train_accuracy(), "accuracy " + wide(FormatPercent(m.train_accuracy(), 1), 6));
  if (evaluating) return parts;  // speed and time left describe training
  for (int i = 0; i < m.scalars_size() && !columns; ++i) {
    add(9 + i, true, ScalarText(m.scalars(i)));
  }
  add(3, m.has_images_per_second(),
      fmt::format("{} {}s/s", wide(FormatRate(m.images_per_second()), 6), sample));
  add(8, m.has_step_ms() && columns, wide(FormatMilliseconds(m.step_ms()), 7) + "/step");
  add(7, m.has_waiting_share(), "waiting " + wide(FormatPercent(m.waiting_share()), 4));
  add(6, p.has_eta_s() && p.eta_s() >= 0, FormatDuration(p.eta_s()) + " left");
  return parts;
}

std::string SkippedText(const events::SkippedStep& skipped) {
  const std::string text =
      fmt::format("Skipped step {}: {}", FormatCount(skipped.step()), skipped.reason());
  return skipped.in_a_row() == 0 ? text : fmt::format("{} ({} in a row)", text, skipped.in_a_row());
}

std::string JoinParts(const std::vector<Part>& parts) {
  std::string line;
  for (const Part& part : parts) line += (line.empty() ? "" : "  ") + part.text;
  return line;
}

// Drops the least important parts until the line has at most `width` characters. The parts of rank
// 0 stay.
std::string FittedLine(std::vector<Part> parts, int width) {
  while (parts.size() > 1 && std::ssize(JoinParts(parts)) > width) {
    const auto last = std::ranges::max_element(parts, {}, &Part::rank);
    if (last->rank == 0) break;
    parts.erase(last);
  }
  return JoinParts(parts);
}

// Truncates `text` to `width` characters. A truncated text ends in "..".
std::string FitTo(const std::string& text, int width) {
  const auto most = static_cast<size_t>(std::max(0, width));
  if (text.size() <= most) return text;
  return most < 3 ? text.substr(0, most) : text.substr(0, most - 2) + "..";
}

const char* Word(events::MemberChange::Kind kind) {
  switch (kind) {
    case events::MemberChange::LOST:
      return "Lost";
    case events::MemberChange::LEFT:
      return "Left:";
    case events::MemberChange::JOINED:
      return "Joined:";
    default:
      return "Reset slow";
  }
}

}  // namespace

std::string RankList(std::span<const uint32_t> ranks) {
  if (ranks.empty()) return "unknown ranks";
  const size_t shown = std::min(ranks.size(), kMostRanksInALine);
  std::string list = Join(ranks.first(shown - 1), ", ");
  if (shown > 1) list += shown == ranks.size() ? " and " : ", ";
  list += std::to_string(ranks[shown - 1]);
  if (shown < ranks.size()) list += fmt::format(" and {} more", ranks.size() - shown);
  return (ranks.size() == 1 ? "rank " : "ranks ") + list;
}

void JobDisplay::ShowStage(const std::string& stage) {
  console_.SetLive(FitTo(stage, console_.Width()));
}

std::optional<int64_t> JobDisplay::step() const {
  return progress_.at().has_step() ? std::optional(progress_.at().step()) : std::nullopt;
}

std::string JobDisplay::AtStep() const {
  if (!progress_.at().has_step()) return "";
  std::string at = " at step " + FormatCount(progress_.at().step());
  if (progress_.total_steps() > 0) at += " of " + FormatCount(progress_.total_steps());
  return at;
}

void JobDisplay::OnEvent(const events::Event& event) {
  // The caller shows the results of a replay.
  if (!plan_.replay.empty() && event.kind_case() != events::Event::kProgress &&
      event.kind_case() != events::Event::kWarning &&
      event.kind_case() != events::Event::kMemberChange) {
    return;
  }
  switch (event.kind_case()) {
    case events::Event::kJoined:
      if (plan_.invite_workers) console_.Print(event.joined().message());
      return;
    case events::Event::kRefused:
      if (!plan_.owns_workers()) console_.Print(event.refused().message());
      return;
    case events::Event::kWaiting:
      return OnWaiting(event.waiting());
    case events::Event::kStarted:
      return OnStarted(event.started());
    case events::Event::kProgress:
      return OnProgress(event.progress());
    case events::Event::kLog:
      return OnLog(event.log());
    case events::Event::kEvaluation:
      return OnEvaluation(event.evaluation());
    case events::Event::kSaving:
      return ShowStage("Writing state and weights");
    case events::Event::kMemberChange:
      return console_.PrintRow(ChangeLine(event.member_change()));
    case events::Event::kSharesChanged:
      return console_.PrintRow("Shares " + event.shares_changed().text());
    case events::Event::kWarning:
      return console_.PrintRow("Warning: " + event.warning().message());
    case events::Event::kRestarted:
      ++restarts_told_;
      return console_.Print(fmt::format("Resumed from step {}, {} after the loss",
                                        FormatCount(event.restarted().from_step()),
                                        FormatDuration(event.restarted().seconds())));
    case events::Event::kSkippedStep:
      return console_.Print(SkippedText(event.skipped_step()));
    default:
      return;  // the supervisor handles the rest
  }
}

void JobDisplay::OnProgress(const events::Progress& progress) {
  progress_.clear_evaluating();
  // MergeFrom would append them.
  if (progress.has_measured()) progress_.mutable_measured()->clear_scalars();
  progress_.MergeFrom(progress);
  if (!plan_.replay.empty()) progress_.clear_eta_s();  // a replay ends before the run would
  TellTime(progress);
  console_.SetLive(ProgressLine(progress_, console_.Width(), SampleNoun(*plan_.config)));
}

// Told once, as soon as steps have been measured for long enough. The first ones do not count: they
// also allocate memory and compile kernels.
void JobDisplay::TellTime(const events::Progress& progress) {
  constexpr double kMeasured_ms = 2000, kInSeconds = 1;
  constexpr double kShort = 60, kLong = 600;  // seconds of a run
  const events::Measured& m = progress.measured();
  if (measured_steps_ < 0 || m.timed_steps() == 0 || !progress_.has_eta_s()) return;
  if (!std::exchange(warmed_up_, true)) return;
  measured_steps_ += m.timed_steps();
  measured_ms_ += m.step_ms() * static_cast<double>(m.timed_steps());
  if (measured_ms_ < kMeasured_ms) return;
  const double step = 1e-3 * measured_ms_ / static_cast<double>(std::exchange(measured_steps_, -1));
  const double rest = step * static_cast<double>(progress_.total_steps() - progress_.at().step());
  if (rest < kShort) return;
  const double epoch = step * static_cast<double>(steps_per_epoch_);
  const config::Config& config = *plan_.config;
  std::vector<std::string> shorter;
  if (rest >= kLong && !on_gpus_ && !HasProgram(config)) {
    if (!config.run().initial_weights().empty() && config.model().freeze_size() == 0) {
      shorter.emplace_back("--freeze NAMES (layers that need not learn)");
    }
    if (plan_.owns_workers() && CouldUseBf16(config)) {
      shorter.emplace_back("--set worker.precision=BF16");
    }
  }
  const auto text = [](double seconds) {
    return seconds < kInSeconds ? FormatMilliseconds(1e3 * seconds) : FormatDuration(seconds);
  };
  console_.PrintRow(
      fmt::format("A step takes about {}{}, the rest of the run {} without evaluations{}",
                  text(step), epoch > 0 ? ", an epoch " + text(epoch) : "", text(rest),
                  shorter.empty() ? "" : "; shorter: " + Join(shorter, ", ")));
}

void JobDisplay::OnLog(const events::Log& log) {
  progress_.clear_evaluating();
  progress_.mutable_at()->MergeFrom(log.at());
  progress_.mutable_measured()->clear_scalars();
  progress_.mutable_measured()->MergeFrom(log.measured());
  if (log.has_eta_s()) progress_.set_eta_s(log.eta_s());
  // Curves of short epochs need more points than readers of the output.
  const int64_t every = plan_.config->run().log_every_steps(), step = log.at().step();
  const bool due = std::exchange(logged_step_, step) / every != step / every;
  if (!console_.is_terminal() && (due || step == progress_.total_steps()))
    Print(IntervalLine(progress_, SampleNoun(*plan_.config)), log.measured().scalars());
}

void JobDisplay::OnEvaluation(const events::Evaluation& evaluation) {
  const bool wide = !console_.is_terminal();
  Print(EvaluationLine(evaluation, wide ? std::numeric_limits<int>::max() : console_.Width() + 1),
        (evaluation.has_validation() ? evaluation.validation() : evaluation.test()).scalars());
  if (evaluation.decision().empty()) return;
  std::string text = evaluation.decision();
  text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  console_.PrintRow(text);
}

// The scalars follow in the line, or in further lines if they do not fit.
void JobDisplay::Print(std::string line,
                       const google::protobuf::RepeatedPtrField<events::Scalar>& scalars) {
  constexpr size_t kColumns = 80;
  for (const events::Scalar& scalar : scalars) {
    if (MetricNamed(scalar.name()) != nullptr) continue;  // EvaluationLine has it
    const std::string text = "  " + ScalarText(scalar);
    if (line.size() + text.size() > kColumns) console_.PrintRow(std::exchange(line, ""));
    line += text;
  }
  console_.PrintRow(line);
}

void JobDisplay::OnWaiting(const events::Waiting& waiting) {
  console_.PrintRow(fmt::format(
      "Waiting for {}: {} of at most {} (deadlines.start_s)",
      RankList({waiting.missing().data(), static_cast<size_t>(waiting.missing_size())}),
      FormatDuration(waiting.elapsed_s()), FormatDuration(plan_.config->deadlines().start_s())));
}

void JobDisplay::OnStarted(const events::Started& started) {
  if (started.has_total_steps()) progress_.set_total_steps(started.total_steps());
  if (started.has_epochs()) progress_.set_epochs(started.epochs());
  steps_per_epoch_ = started.steps_per_epoch();
  std::string text;
  const std::string sample = SampleNoun(*plan_.config);
  auto add = [&](bool known, int64_t count, const std::string& noun, const char* more = "") {
    if (known) text += (text.empty() ? "" : ", ") + Plural(count, noun) + more;
  };
  add(started.has_train_samples(), started.train_samples(), "training " + sample);
  add(started.has_validation_samples(), started.validation_samples(), "validation " + sample);
  add(started.has_test_samples(), started.test_samples(), "test " + sample);
  add(started.has_steps_per_epoch(), started.steps_per_epoch(), "step", " per epoch");
  add(started.has_total_steps(), started.total_steps(), "step", " in total");
  console_.PrintRow("Started: " + (text.empty() ? "all workers are connected" : text));
  on_gpus_ = AreOnGpus(started);
  for (const std::string& line : DeviceTexts(*plan_.config, started)) console_.Print(line);
  if (log_placement_) {
    const auto cores_of = [this](pid_t pid) {  // a process of another host may have the number
      return plan_.owns_workers() ? CoresOf(pid) : "-";
    };
    for (const std::string& line : PlacementLines(started, cores_of, plan_.places)) {
      console_.Print(line);
    }
  }
  ShowStage("Waiting for the first step");
}

std::string ScalarText(const events::Scalar& scalar) {
  const Metric* const metric = MetricNamed(scalar.name());
  if (metric != nullptr && metric->is_share)
    return scalar.name() + " " + FormatPercent(scalar.value(), 2);
  return scalar.name() +
         (scalar.has_value() ? fmt::format(" {:.4g}", scalar.value()) : " not finite");
}

std::string ProgressLine(const events::Progress& progress, int width, const char* sample) {
  return FitTo(FittedLine(Parts(progress, /*columns=*/false, sample), width), width);
}

std::string IntervalLine(const events::Progress& progress, const char* sample) {
  return JoinParts(Parts(progress, /*columns=*/true, sample));
}

std::string EvaluationLine(const events::Evaluation& evaluation, int width) {
  const events::Position& at = evaluation.at();
  const bool validates = evaluation.has_validation();
  const events::Scores& scores = validates ? evaluation.validation() : evaluation.test();
  std::vector<Part> parts{{0, "evaluation"}};
  if (at.has_epoch()) parts.push_back({2, fmt::format("epoch {:.2f}", at.epoch())});
  if (at.has_step()) parts.push_back({0, "step " + FormatCount(at.step())});
  if (scores.has_accuracy())
    parts.push_back({0, Measure{validates, false}.Named(scores.accuracy())});
  for (const events::Scalar& scalar : scores.scalars()) {
    if (MetricNamed(scalar.name()) != nullptr) parts.push_back({1, ScalarText(scalar)});
  }
  if (scores.has_loss()) parts.push_back({0, Measure{validates, true}.Named(scores.loss())});
  if (at.has_elapsed_s()) parts.push_back({3, "after " + FormatDuration(at.elapsed_s())});
  return FittedLine(std::move(parts), width);
}

std::string ChangeLine(const events::MemberChange& change) {
  std::string text = fmt::format("{} rank {} (pid {}) at step {}", Word(change.kind()),
                                 change.rank(), change.pid(), FormatCount(change.at().step()));
  if (!change.why().empty() && change.kind() != events::MemberChange::FENCED)
    text += ": " + change.why();
  if (change.slices() > 0) text += fmt::format("; {} reassigned", Plural(change.slices(), "slice"));
  if (change.blocks() > 0) {
    text += fmt::format("; {} reassigned", Plural(change.blocks(), "evaluation block"));
  }
  return text + fmt::format("; {} now", Plural(change.workers(), "worker"));
}

}  // namespace muster
