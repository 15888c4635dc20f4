#include "ps/record/run_log.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <filesystem>
#include <sstream>
#include <utility>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/records.h"
#include "common/base/utc_time.h"
#include "common/events/event_log.h"
#include "common/events/metrics_line.h"
#include "ps/record/event_texts.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

std::string PathIn(const std::string& dir, const char* name) {
  return dir.empty() ? "" : dir + "/" + name;
}

// Whether run.events has what the checkpoint counts. If not, moves it away.
bool FindLog(const std::string& path, const checkpoint::State* resumed,
             const GrowingFile::Warn& warn) {
  if (path.empty() || resumed == nullptr) return false;
  const std::string text = ReadFileIfThere(path);
  if (text.size() <= kFirstRecord) return false;  // only a status
  if (Continues(std::string_view(text).substr(kFirstRecord), resumed->events())) return true;
  // A server before this one began it with the lines of metrics.jsonl, and left no checkpoint.
  if (!resumed->has_events()) return false;
  std::string aside = path + ".damaged";
  for (int i = 2; fs::exists(fs::symlink_status(aside)); ++i) {
    aside = fmt::format("{}.damaged-{}", path, i);
  }
  std::error_code error;
  fs::rename(path, aside, error);
  if (error) {
    throw Error(ExitCode::kFailure,
                "{}: expected the events up to the checkpoint, got others; cannot be moved to {}: "
                "{}",
                path, aside, error.message());
  }
  warn(fmt::format(
      "{}: expected the events up to the checkpoint, got others. It was moved to {}; a new one "
      "begins with the lines of metrics.jsonl",
      path, aside));
  return false;
}

// Whether a line of metrics.jsonl belongs to steps after `step`, or is the last one of the run.
bool IsLater(const nlohmann::json& line, int64_t step) {
  if (!line.is_object() || line.contains("event")) return false;
  const auto at = line.find("step");
  return line.contains("final") ||
         (at != line.end() && at->is_number_integer() && at->get<int64_t>() > step);
}

// Calls visit(line with its newline, its JSON) until it returns false.
template <typename Visit>
void ForEachLine(std::string_view text, const Visit& visit) {
  for (size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1)) {
    if (!visit(text.substr(0, end + 1), ParseJson(text.substr(0, end)))) return;
  }
}

}  // namespace

RunLog::RunLog(const std::string& dir, const checkpoint::State* resumed, GrowingFile::Warn warn)
    : resumed_(resumed != nullptr ? std::optional<Kept>({resumed->metrics(), resumed->events()})
                                  : std::nullopt),
      warn_(std::move(warn)),
      continues_(FindLog(PathIn(dir, kEventLog), resumed, warn_)),
      metrics_(PathIn(dir, "metrics.jsonl"), resumed_ ? 0 : O_EXCL, 0, warn_),
      events_(PathIn(dir, kEventLog), resumed_ ? 0 : O_TRUNC, kFirstRecord, warn_) {}

void RunLog::Begin(int64_t step, const std::function<void(const events::Event&)>& visit) {
  if (fd() < 0) return;
  events::Event begun;
  begun.set_unix_ms(UnixMilliseconds());
  begun.mutable_begun()->set_step(step);
  if (!resumed_) {
    events_.StartAt("", LogRecord(begun));
    return metrics_.StartAt("", "");
  }
  const std::string lines = metrics_.Read();
  const OldLines old = continues_ ? OldLines() : SplitMetrics(lines, step);
  Records past = continues_ ? RecordsSoFar() : RecordsOf(old);
  begun.mutable_begun()->set_position(past.position);
  past.pending += LogRecord(begun);

  const bool unchanged = Continues(lines, resumed_->metrics);
  std::string missing;  // in metrics.jsonl
  std::istringstream log(past.there + past.pending);
  ForEachStanding(log, 0, [&](const events::Event& event, int64_t at) {
    visit(event);
    if (!unchanged || at >= past.position) missing += MetricsText(event);
  });
  events_.StartAt(past.there, "");
  events_.Append(past.pending);  // before metrics.jsonl loses its lines of events
  if (!continues_) return metrics_.StartAt(old.there, old.pending);
  if (unchanged) {
    const auto bytes = static_cast<size_t>(resumed_->metrics.bytes());
    return metrics_.StartAt(std::string_view(lines).substr(0, bytes),
                            resumed_->metrics.unwritten() + missing);
  }
  if (missing.starts_with(lines)) {  // the rest was not on the disk before a loss of power
    return metrics_.StartAt(lines, missing.substr(lines.size()));
  }
  PutAside(lines);
  warn_(fmt::format("{}: the file was changed; it is written again from {}", metrics_.path(),
                    kEventLog));
  metrics_.StartAt("", missing);
}

RunLog::Records RunLog::RecordsSoFar() const {
  const checkpoint::GrownFile& kept = resumed_->events;
  Records records{.there = events_.Read(), .position = kept.bytes() + std::ssize(kept.unwritten())};
  std::istringstream file(records.there);
  const uint64_t whole = ForEachRecord(file, 0, [](std::string_view, uint64_t) { return true; }).at;
  if (static_cast<int64_t>(whole) >= records.position) {
    records.there.resize(whole);
  } else {  // the disk never took all of the rest
    records.there.resize(static_cast<size_t>(kept.bytes()));
    records.pending = kept.unwritten();
  }
  return records;
}

RunLog::Records RunLog::RecordsOf(const OldLines& lines) {
  events::Event earlier;
  earlier.set_unix_ms(UnixMilliseconds());
  earlier.mutable_earlier()->set_lines(lines.there + lines.pending);
  std::string record = LogRecord(earlier);
  const int64_t position = std::ssize(record);
  return {.pending = std::move(record), .position = position};
}

// If the file was changed, what follows the checkpoint begins with the first later line.
RunLog::OldLines RunLog::SplitMetrics(const std::string& text, int64_t step) const {
  OldLines lines;
  size_t bytes = 0;
  if (Continues(text, resumed_->metrics)) {
    bytes = static_cast<size_t>(resumed_->metrics.bytes());
  } else {
    ForEachLine(text, [&](std::string_view line, const nlohmann::json& json) {
      if (IsLater(json, step)) return false;
      bytes += line.size();
      return true;
    });
    if (resumed_->metrics.has_xxh3()) {
      warn_(
          fmt::format("{}: the file was changed, and {} cannot restore it; steps up to the "
                      "checkpoint may be missing",
                      metrics_.path(), kEventLog));
    }
    PutAside(std::string_view(text).substr(bytes));
  }
  lines.there = text.substr(0, bytes);
  const auto add = [&](std::string_view line) {
    if (lines.there.find(line) == std::string::npos &&
        lines.pending.find(line) == std::string::npos)
      lines.pending += line;
    return true;
  };
  ForEachLine(resumed_->metrics.unwritten(),
              [&](std::string_view line, const nlohmann::json&) { return add(line); });
  ForEachLine(std::string_view(text).substr(bytes),
              [&](std::string_view line, const nlohmann::json& json) {
                return !json.is_object() || !json.contains("event") || add(line);
              });
  return lines;
}

// Archives the lines, because a person may have added them.
void RunLog::PutAside(std::string_view lines) const {
  if (lines.empty()) return;
  const std::string path = fs::path(metrics_.path()).replace_filename("metrics-cut.jsonl");
  try {
    WriteFileAtomically(path, ReadFileIfThere(path) + std::string(lines));
  } catch (const Error& error) {
    throw Error(ExitCode::kFailure,
                "{}: the file was changed, and its lines could not be archived: {}",
                metrics_.path(), error.what());
  }
  LogWarning("{}: the file was changed; lines were moved to {}", metrics_.path(), path);
}

void RunLog::Append(const events::Event& event) {
  if (fd() < 0) return;
  events_.Append(LogRecord(event));
  metrics_.Append(MetricsText(event));
}

void RunLog::Flush() {
  events_.Append("");
  metrics_.Append("");
}

void RunLog::TryAgain() {
  events_.TryAgain();
  metrics_.TryAgain();
}

void RunLog::EndRetries() {
  events_.EndRetries();
  metrics_.EndRetries();
}

std::string RunLog::trouble() const { return JoinTroubles(events_.trouble(), metrics_.trouble()); }

}  // namespace muster
