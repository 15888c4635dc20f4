#include "cli/view/top_view.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "cli/text/measure.h"
#include "cli/text/text_table.h"
#include "cli/text/units.h"
#include "cli/text/wrapped.h"
#include "common/base/text.h"

namespace muster {
namespace {

using Json = nlohmann::json;

constexpr const char* kGap = "  ";
constexpr const char *kBold = "\x1b[1m", *kRed = "\x1b[31;1m", *kDim = "\x1b[2m",
                     *kPlain = "\x1b[0m";

double Number(const Json& json, const char* key) { return NumberIn(json, key).value_or(NAN); }

// Escapes control characters, because the file is not trusted.
std::string Text(const Json& json, const char* key) { return Printable(TextIn(json, key)); }

// The member `key`; empty if it is missing or has another type.
Json Part(const Json& json, const char* key, Json::value_t type) {
  const auto found = json.find(key);
  return found != json.end() && found->type() == type ? *found : Json(type);
}
Json Object(const Json& json, const char* key) { return Part(json, key, Json::value_t::object); }

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

std::string StateText(const Json& status, const TopRun& run) {
  std::string state = Text(status, "state");
  if (EndIn(status)) return state;
  if (run.state == RunState::kDiskFull) return state + ", then its disk was full";
  if (IsGone(run.state)) return "killed while " + state;
  if (run.state != RunState::kRunning) return StateName(run.state);
  // The status is old: the server cannot run, or the disk hangs or is full.
  if (run.age_s > kOldSeconds) {
    return fmt::format("{}, as of {} ago", state, FormatDuration(run.age_s));
  }
  return state;
}

// "97 % 71 C 412 W"; "" without readings.
std::string GpuText(const Json& json) {
  std::vector<std::string> parts;
  const auto put = [&](const char* key, double scale, const char* unit) {
    const double value = Number(json, key);
    if (std::isfinite(value)) parts.push_back(fmt::format("{:.0f} {}", scale * value, unit));
  };
  put("gpu_utilization", 100, "%");
  put("gpu_temperature_c", 1, "C");
  put("gpu_power_w", 1, "W");
  return Join(parts, " ");
}

std::vector<std::string> ProgressLines(const Json& status, int width) {
  const double step = Number(status, "step"), total = Number(status, "total_steps");
  std::vector<std::string> parts{"step " + FormatCount(step)};
  if (total > 0) {
    parts[0] += "/" + FormatCount(total);
    parts.push_back(Bar(step / total, width >= 120 ? 40 : 20) + " " + FormatPercent(step / total));
  }
  if (Number(status, "epochs") > 0) {  // 0: not known until the workers have joined
    parts.push_back(
        fmt::format("epoch {:.2f}/{:.4g}", Number(status, "epoch"), Number(status, "epochs")));
  }
  if (const double left = Number(status, "eta_s"); left > 0) {
    parts.push_back(FormatDuration(left) + " left");
  }
  std::vector<std::string> lines{Fitted(parts, width)};
  parts.clear();
  const auto put = [&](const std::string& key, const auto& text) {
    const double value = Number(status, key.c_str());
    if (std::isfinite(value)) parts.push_back(text(value));
  };
  put("train_loss", [](double loss) { return fmt::format("loss {:.3f}", loss); });
  put("train_accuracy", [](double share) { return "accuracy " + FormatPercent(share, 1); });
  for (const Measure& measure : kMeasures) {
    const char* const step = measure.on_validation ? "validated_step" : "tested_step";
    const std::string key = measure.Name('_');
    const auto text = [&](double value) {
      return fmt::format("{} at step {}", measure.Named(value), FormatCount(Number(status, step)));
    };
    // The status has null for a loss that is not finite.
    const bool bad = measure.is_loss && status.contains(key) && status[key].is_null();
    bad ? parts.push_back(text(NAN)) : put(key, text);
  }
  put("learning_rate", [](double rate) { return fmt::format("learning rate {:.4g}", rate); });
  lines.push_back(Fitted(parts, width));
  parts.clear();
  const Json scalars = Object(status, "scalars");  // of a program that trains its own model
  for (const auto& [name, value] : scalars.items()) {
    if (value.is_number()) {
      parts.push_back(fmt::format("{} {:.4g}", Printable(name), value.get<double>()));
    }
  }
  lines.push_back(Fitted(parts, width));
  parts.clear();
  put("images_per_second", [](double rate) { return FormatRate(rate) + " samples/s"; });
  put("step_ms", [](double ms) { return FormatMilliseconds(ms) + "/step"; });
  put("gpu_memory_mb", [](double mb) { return "GPU memory " + FormatBytes(1e6 * mb); });
  if (const std::string gpus = GpuText(status); !gpus.empty()) parts.push_back("GPUs " + gpus);
  if (const auto blocks = status.find("evaluating"); blocks != status.end()) {
    parts.push_back(fmt::format("evaluating {}/{}", FormatCount(Number(*blocks, "done")),
                                FormatCount(Number(*blocks, "total"))));
  }
  lines.push_back(Fitted(parts, width));
  std::erase(lines, "");
  return lines;
}

std::string ServerLine(const Json& status, int width) {
  const Json server = Object(status, "server");
  return Fitted({fmt::format("server  {}, pid {}", Text(server, "host"), Number(server, "pid")),
                 fmt::format("{:.2f} cores", Number(server, "cores")),
                 fmt::format("memory {} (most: {})", FormatBytes(Number(server, "bytes")),
                             FormatBytes(Number(server, "peak_bytes")))},
                width);
}

std::string CheckpointLine(const Json& status, int width) {
  const Json checkpoint = Object(status, "checkpoint");
  const double newest = Number(checkpoint, "newest_step"), next = Number(checkpoint, "next_step");
  std::vector<std::string> parts;
  if (std::isfinite(newest)) {
    parts.push_back(fmt::format("last checkpoint at step {}", FormatCount(newest)));
  } else {
    parts.push_back("no checkpoint yet");
  }
  double seconds = Number(checkpoint, "next_s");
  if (std::isfinite(next)) {
    seconds = 1e-3 * (next - Number(status, "step")) * Number(status, "step_ms");
    parts.push_back("next at step " + FormatCount(next));
  } else {
    parts.emplace_back("next");
  }
  if (std::isfinite(seconds)) parts.back() += " in " + FormatDuration(std::max(0.0, seconds));
  return Fitted(parts, width);
}

std::string SlowestLine(const Json& slowest, int width) {
  return Fitted(
      {fmt::format("slowest rank {} since step {} ({})", Number(slowest, "rank"),
                   FormatCount(Number(slowest, "since_step")),
                   FormatDuration(Number(slowest, "since_s"))),
       fmt::format("{} of compute and input", FormatMilliseconds(Number(slowest, "busy_ms"))),
       fmt::format("the others {}", FormatMilliseconds(Number(slowest, "others_ms")))},
      width);
}

// "140/152": the median and the 99th percentile.
std::string SpreadText(const Json& rank, const char* part) {
  const Json spread = Object(rank, part);
  const auto text = [](double ms) {
    return fmt::format("{:.{}f}", ms, ms >= 99.95 ? 0 : ms >= 9.995 ? 1 : 2);
  };
  return text(Number(spread, "p50")) + "/" + text(Number(spread, "p99"));
}

// The ranks to show, in order: all, or the slowest ones, including `slowest`.
std::vector<size_t> ShownRanks(const Json& ranks, double slowest, size_t most) {
  std::vector<size_t> shown(ranks.size());
  std::iota(shown.begin(), shown.end(), 0);
  if (shown.size() <= most) return shown;
  const auto speed = [&](size_t rank) {
    if (Number(ranks[rank], "rank") == slowest) return -1.0;
    const double rate = Number(ranks[rank], "images_per_second");
    return std::isnan(rate) ? 0.0 : rate;  // NaN cannot be sorted
  };
  std::ranges::stable_sort(shown, std::less{}, speed);
  shown.resize(most);
  std::ranges::sort(shown);
  return shown;
}

std::vector<std::string> RankLines(const Json& ranks, const std::vector<size_t>& shown,
                                   const TopRun& run, int width) {
  struct Kind {
    int rank;
    const char *title, *key;
  };
  static constexpr std::array<Kind, 5> kParts{{{0, "compute ms", "compute_ms"},
                                               {4, "input ms", "input_ms"},
                                               {7, "push ms", "push_ms"},
                                               {3, "wait ms", "wait_ms"},
                                               {8, "pull ms", "pull_ms"}}};
  std::vector<TextTable::Column> columns{{"rank", true},      {"host", false, 9},
                                         {"pid", true, 10},   {"memory", true, 5},
                                         {"slices", true, 6}, {"samples/s", true, 2}};
  const bool gpus =
      std::ranges::any_of(shown, [&](size_t index) { return !GpuText(ranks[index]).empty(); });
  if (gpus) columns.push_back({"GPU", false, 1});
  for (const Kind& part : kParts) columns.push_back({part.title, true, part.rank});
  TextTable table(columns);
  for (const size_t index : shown) {
    const Json& rank = ranks[index];
    const std::string state = Text(rank, "state");
    const double bytes = index < run.rank_bytes.size() ? run.rank_bytes[index] : NAN;
    std::vector<std::string> row{FormatCount(Number(rank, "rank")),
                                 Text(rank, "host") + (state.empty() ? "" : " (" + state + ")"),
                                 fmt::format("{}", Number(rank, "pid")),
                                 FormatBytes(bytes),
                                 FormatCount(Number(rank, "slices")),
                                 FormatRate(Number(rank, "images_per_second"))};
    if (gpus) row.push_back(GpuText(rank));
    for (const Kind& part : kParts) row.push_back(SpreadText(rank, part.key));
    table.AddRow(std::move(row));
  }
  return table.Lines(width);
}

}  // namespace

std::vector<std::string> TopLines(const Json& status, const TopRun& run, const TopScreen& screen) {
  const auto paint = [&](const char* color, const std::string& text) {
    return screen.color ? color + text + kPlain : text;
  };
  const int width = screen.width;
  const Json slowest = Object(status, "slowest");
  const bool straggles = slowest.contains("straggles") && slowest["straggles"] == true;
  std::vector<std::string> lines;
  lines.push_back(paint(
      kBold, Fitted({run.name, StateText(status, run), FormatDuration(Number(status, "elapsed_s"))},
                    width)));
  for (std::string& line : ProgressLines(status, width)) lines.push_back(std::move(line));
  lines.push_back(ServerLine(status, width));
  if (run.state == RunState::kRunning && status.contains("checkpoint")) {
    lines.push_back(CheckpointLine(status, width));
  }
  if (run.age_s > kOldSeconds && !run.disk.empty() && !EndIn(status)) {
    for (const std::string& line : Wrapped("this status is old: " + run.disk, width)) {
      lines.push_back(paint(kRed, line));
    }
  }
  if (!slowest.empty()) {
    const std::string line = SlowestLine(slowest, width);
    lines.push_back(straggles ? paint(kRed, line) : line);
  }
  if (const std::string waits = Text(status, "waits"); !waits.empty()) {
    for (const std::string& line : Wrapped(waits, width)) lines.push_back(paint(kRed, line));
  }
  const Json ranks = Part(status, "ranks", Json::value_t::array);
  if (ranks.empty()) return lines;
  lines.emplace_back();
  constexpr int kAround = 4;  // titles, rule, note on hidden ranks, one spare line
  const int rows = std::max(1, screen.height - static_cast<int>(lines.size()) - kAround);
  const std::vector<size_t> shown =
      ShownRanks(ranks, Number(slowest, "rank"), static_cast<size_t>(rows));
  const std::vector<std::string> table = RankLines(ranks, shown, run, width);
  for (size_t i = 0; i < table.size(); ++i) {
    const bool title = i < 2;
    const bool slow =
        !title && straggles && Number(ranks[shown[i - 2]], "rank") == Number(slowest, "rank");
    lines.push_back(title ? paint(kDim, table[i]) : slow ? paint(kRed, table[i]) : table[i]);
  }
  if (shown.size() < ranks.size()) {
    lines.push_back(fmt::format(
        "  and {}", Plural(static_cast<int64_t>(ranks.size() - shown.size()), "faster rank")));
  }
  return lines;
}

}  // namespace muster
