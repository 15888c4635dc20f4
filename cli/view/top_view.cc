#include "cli/view/top_view.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "cli/text/measure.h"
#include "cli/text/text_table.h"
#include "cli/text/units.h"
#include "cli/text/wrapped.h"
#include "common/base/text.h"

namespace muster {
namespace {

constexpr const char* kGap = "  ";
constexpr const char *kBold = "\x1b[1m", *kRed = "\x1b[31;1m", *kDim = "\x1b[2m",
                     *kPlain = "\x1b[0m";

// Joins as many parts as fit.
std::string Fitted(const std::vector<std::string>& parts, int width) {
  std::string line;
  for (const std::string& part : parts) {
    if (part.empty()) continue;
    const std::string gap = line.empty() ? "" : kGap;
    if (!line.empty() && line.size() + gap.size() + part.size() > static_cast<size_t>(width)) break;
    line += gap;
    line += part;
  }
  return line.substr(0, static_cast<size_t>(std::max(0, width)));
}

std::string Bar(double share, int width) {
  const int done = static_cast<int>((share > 0 ? std::min(share, 1.0) : 0) * width);
  return "[" + std::string(static_cast<size_t>(done), '#') +
         std::string(static_cast<size_t>(width - done), '-') + "]";
}

constexpr double kOldSeconds = 5;  // the status is replaced each second

// Text of the status is not trusted, so it is made printable.
std::string StateText(const events::Status& status, const TopRun& run) {
  std::string state = Printable(status.state());
  if (EndIn(status)) return state;
  if (run.state == RunState::kDiskFull) return state + ", then its disk was full";
  if (IsGone(run.state)) return "killed while " + state;
  if (run.state != RunState::kRunning) return StateName(run.state);
  // The status is old: the server cannot run, or the disk hangs.
  if (run.age_s > kOldSeconds) {
    return fmt::format("{}, as of {} ago", state, FormatDuration(run.age_s));
  }
  return state;
}

// "97 % 71 C 412 W"; "" without readings. `gpu`: of a rank or of all.
template <typename Readings>
std::string GpuText(const Readings& gpu) {
  std::vector<std::string> parts;
  if (gpu.has_gpu_utilization()) parts.push_back(FormatPercent(gpu.gpu_utilization()));
  if (gpu.has_gpu_temperature_c()) {
    parts.push_back(fmt::format("{:.0f} C", gpu.gpu_temperature_c()));
  }
  if (gpu.has_gpu_power_w()) parts.push_back(fmt::format("{:.0f} W", gpu.gpu_power_w()));
  return Join(parts, " ");
}

std::string PositionLine(const events::Progress& progress, int width) {
  const auto step = static_cast<double>(progress.at().step());
  const auto total = static_cast<double>(progress.total_steps());
  std::vector<std::string> parts{"step " + FormatCount(step)};
  if (total > 0) {
    parts[0] += "/" + FormatCount(total);
    parts.push_back(Bar(step / total, width >= 120 ? 40 : 20) + " " + FormatPercent(step / total));
  }
  if (progress.epochs() > 0) {  // 0: not known until the workers have joined
    parts.push_back(fmt::format("epoch {:.2f}/{:.4g}", progress.at().epoch(), progress.epochs()));
  }
  if (progress.eta_s() > 0) parts.push_back(FormatDuration(progress.eta_s()) + " left");
  return Fitted(parts, width);
}

std::string ResultLine(const events::Status& status, int width) {
  const events::Measured& measured = status.progress().measured();
  std::vector<std::string> parts;
  if (measured.has_train_loss()) parts.push_back(fmt::format("loss {:.3f}", measured.train_loss()));
  if (measured.has_train_accuracy()) {
    parts.push_back("accuracy " + FormatPercent(measured.train_accuracy(), 1));
  }
  for (const Measure& measure : kMeasures) {
    const bool validation = measure.on_validation;
    if (!(validation ? status.has_validation() : status.has_test())) continue;
    const events::Scores& scores = validation ? status.validation() : status.test();
    const bool needs_loss = !scores.has_accuracy() || !std::isfinite(scores.loss());
    if (measure.is_loss ? !needs_loss : !scores.has_accuracy()) continue;
    const int64_t step = validation ? status.validated_step() : status.tested_step();
    parts.push_back(fmt::format("{} at step {}",
                                measure.Named(measure.is_loss ? scores.loss() : scores.accuracy()),
                                FormatCount(step)));
  }
  if (status.learning_rate() > 0) {
    parts.push_back(fmt::format("learning rate {:.4g}", status.learning_rate()));
  }
  return Fitted(parts, width);
}

std::string SpeedLine(const events::Progress& progress, int width) {
  const events::Measured& measured = progress.measured();
  std::vector<std::string> parts;
  if (measured.has_images_per_second()) {
    parts.push_back(FormatRate(measured.images_per_second()) + " samples/s");
  }
  if (measured.has_step_ms()) parts.push_back(FormatMilliseconds(measured.step_ms()) + "/step");
  if (measured.has_gpu_memory_mb()) {
    parts.push_back("GPU memory " + FormatBytes(1e6 * measured.gpu_memory_mb()));
  }
  if (const std::string gpus = GpuText(measured); !gpus.empty()) parts.push_back("GPUs " + gpus);
  if (progress.has_evaluating()) {
    parts.push_back(fmt::format("evaluating {}/{}", FormatCount(progress.evaluating().done()),
                                FormatCount(progress.evaluating().total())));
  }
  return Fitted(parts, width);
}

std::vector<std::string> ProgressLines(const events::Status& status, int width) {
  const events::Progress& progress = status.progress();
  std::vector<std::string> scalars;  // of a program that trains its own model
  for (const events::Scalar& scalar : progress.measured().scalars()) {
    if (!scalar.has_value()) continue;
    scalars.push_back(fmt::format("{} {:.4g}", Printable(scalar.name()), scalar.value()));
  }
  std::vector<std::string> lines{PositionLine(progress, width), ResultLine(status, width),
                                 Fitted(scalars, width), SpeedLine(progress, width)};
  std::erase(lines, "");
  return lines;
}

std::string ServerLine(const events::Status::Server& server, int width) {
  return Fitted(
      {fmt::format("server  {}, pid {}", Printable(server.host()), server.pid()),
       fmt::format("{:.2f} cores", server.cores()),
       fmt::format("memory {} (most: {})", FormatBytes(static_cast<double>(server.bytes())),
                   FormatBytes(static_cast<double>(server.peak_bytes())))},
      width);
}

std::string CheckpointLine(const events::Status& status, int width) {
  const events::Status::Checkpoint& checkpoint = status.checkpoint();
  std::vector<std::string> parts{"no checkpoint yet", "next"};
  if (checkpoint.has_newest_step()) {
    parts[0] = "last checkpoint at step " + FormatCount(checkpoint.newest_step());
  }
  double seconds = checkpoint.has_next_s() ? checkpoint.next_s() : NAN;
  if (checkpoint.has_next_step()) {
    const events::Progress& progress = status.progress();
    const auto steps = static_cast<double>(checkpoint.next_step() - progress.at().step());
    if (progress.measured().has_step_ms()) seconds = 1e-3 * steps * progress.measured().step_ms();
    parts[1] += " at step " + FormatCount(checkpoint.next_step());
  }
  if (std::isfinite(seconds)) parts[1] += " in " + FormatDuration(std::max(0.0, seconds));
  return Fitted(parts, width);
}

std::string SlowestLine(const events::Status::Slowest& slowest, int width) {
  return Fitted({fmt::format("slowest rank {} since step {} ({})", slowest.rank(),
                             FormatCount(slowest.since_step()), FormatDuration(slowest.since_s())),
                 FormatMilliseconds(slowest.busy_ms()) + " of compute and input",
                 "the others " + FormatMilliseconds(slowest.others_ms())},
                width);
}

// "140/152": the median and the 99th percentile.
std::string SpreadText(double p50, double p99) {
  const auto text = [](double ms) {
    return fmt::format("{:.{}f}", ms, ms >= 99.95 ? 0 : ms >= 9.995 ? 1 : 2);
  };
  return text(p50) + "/" + text(p99);
}

// Whether the rank is the slowest one of the status, which delays the others.
bool IsStraggler(const events::Status::Rank& rank, const events::Status& status) {
  return status.slowest().straggles() && rank.rank() == status.slowest().rank();
}

// The ranks to show, in order: all, or the slowest ones.
std::vector<int> ShownRanks(const events::Status& status, size_t most) {
  std::vector<int> shown(static_cast<size_t>(status.ranks_size()));
  std::iota(shown.begin(), shown.end(), 0);
  if (shown.size() <= most) return shown;
  const auto speed = [&](int index) {
    const events::Status::Rank& rank = status.ranks(index);
    if (status.has_slowest() && rank.rank() == status.slowest().rank()) return -1.0;
    const double rate = rank.images_per_second();
    return std::isnan(rate) ? 0.0 : rate;  // NaN cannot be sorted
  };
  std::ranges::stable_sort(shown, std::less{}, speed);
  shown.resize(most);
  std::ranges::sort(shown);
  return shown;
}

std::vector<std::string> RankLines(const events::Status& status, const std::vector<int>& shown,
                                   const TopRun& run, int width) {
  struct Kind {
    int rank;
    const char* title;
    double (events::StepParts::*ms)() const;
  };
  static constexpr std::array<Kind, 5> kParts{{{0, "compute ms", &events::StepParts::compute_ms},
                                               {4, "input ms", &events::StepParts::input_ms},
                                               {7, "push ms", &events::StepParts::push_ms},
                                               {3, "wait ms", &events::StepParts::wait_ms},
                                               {8, "pull ms", &events::StepParts::pull_ms}}};
  std::vector<TextTable::Column> columns{{"rank", true},      {"host", false, 9},
                                         {"pid", true, 10},   {"memory", true, 5},
                                         {"slices", true, 6}, {"samples/s", true, 2}};
  const bool gpus =
      std::ranges::any_of(shown, [&](int index) { return !GpuText(status.ranks(index)).empty(); });
  if (gpus) columns.push_back({"GPU", false, 1});
  for (const Kind& part : kParts) columns.push_back({part.title, true, part.rank});
  TextTable table(columns);
  for (const int index : shown) {
    const events::Status::Rank& rank = status.ranks(index);
    const std::string state = rank.state().empty() ? "" : " (" + Printable(rank.state()) + ")";
    const auto at = static_cast<size_t>(index);
    const double bytes = at < run.rank_bytes.size() ? run.rank_bytes[at] : NAN;
    std::vector<std::string> row{
        FormatCount(int64_t{rank.rank()}), Printable(rank.host()) + state,
        fmt::format("{}", rank.pid()),     FormatBytes(bytes),
        FormatCount(rank.slices()),        FormatRate(rank.images_per_second())};
    if (gpus) row.push_back(GpuText(rank));
    for (const Kind& part : kParts) {
      row.push_back(SpreadText((rank.p50().*part.ms)(), (rank.p99().*part.ms)()));
    }
    table.AddRow(std::move(row));
  }
  return table.Lines(width);
}

}  // namespace

std::vector<std::string> TopLines(const events::Status& status, const TopRun& run,
                                  const TopScreen& screen) {
  const auto paint = [&](const char* color, const std::string& text) {
    return screen.color ? color + text + kPlain : text;
  };
  const int width = screen.width;
  std::vector<std::string> lines;
  const std::string elapsed = FormatDuration(status.progress().at().elapsed_s());
  lines.push_back(paint(kBold, Fitted({run.name, StateText(status, run), elapsed}, width)));
  for (std::string& line : ProgressLines(status, width)) lines.push_back(std::move(line));
  lines.push_back(ServerLine(status.server(), width));
  if (run.state == RunState::kRunning && status.has_checkpoint()) {
    lines.push_back(CheckpointLine(status, width));
  }
  if (!run.disk.empty() && !EndIn(status)) {
    for (const std::string& line : Wrapped("the run cannot be saved: " + run.disk, width)) {
      lines.push_back(paint(kRed, line));
    }
  }
  if (status.has_slowest()) {
    const std::string line = SlowestLine(status.slowest(), width);
    lines.push_back(status.slowest().straggles() ? paint(kRed, line) : line);
  }
  if (!status.waits().empty()) {
    for (const std::string& line : Wrapped(Printable(status.waits()), width)) {
      lines.push_back(paint(kRed, line));
    }
  }
  if (status.ranks().empty()) return lines;
  lines.emplace_back();
  constexpr int kAround = 4;  // titles, rule, note on hidden ranks, one spare line
  const int rows = std::max(1, screen.height - static_cast<int>(lines.size()) - kAround);
  const std::vector<int> shown = ShownRanks(status, static_cast<size_t>(rows));
  const std::vector<std::string> table = RankLines(status, shown, run, width);
  for (size_t i = 0; i < table.size(); ++i) {
    const bool title = i < 2;
    const bool slow = !title && IsStraggler(status.ranks(shown[i - 2]), status);
    lines.push_back(title ? paint(kDim, table[i]) : slow ? paint(kRed, table[i]) : table[i]);
  }
  const int64_t hidden = status.ranks_size() - std::ssize(shown);
  if (hidden > 0) lines.push_back(fmt::format("  and {}", Plural(hidden, "faster rank")));
  return lines;
}

}  // namespace muster
