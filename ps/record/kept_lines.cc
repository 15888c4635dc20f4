#include "ps/record/kept_lines.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "common/base/json.h"
#include "common/base/text.h"

namespace muster {
namespace {

enum class LineKind { kLog, kEvaluation, kLater, kOther, kUnreadable };

struct ReadLine {
  LineKind kind = LineKind::kOther;
  int64_t step = 0;
};

ReadLine Read(std::string_view text, const DueLines& due) {
  const auto line = ParseJson(text);
  if (!line.is_object()) return {LineKind::kUnreadable};
  if (line.contains("event")) return {};
  if (line.contains("final")) return {LineKind::kLater};
  const auto step = line.find("step");
  if (step == line.end() || !step->is_number_integer()) return {};
  ReadLine read{LineKind::kLog, step->get<int64_t>()};
  const bool tests = line.contains("test_accuracy");
  const bool evaluation = tests || line.contains("validation_accuracy");
  if (evaluation) read.kind = LineKind::kEvaluation;
  const bool is_over = tests ? due.tested : due.evaluated;
  if (read.step > due.step || (evaluation && read.step == due.step && !is_over)) {
    read.kind = LineKind::kLater;
  }
  return read;
}

// "10 to 360, 400 and more"
std::string StepsText(const std::vector<int64_t>& due, const std::set<int64_t>& there) {
  constexpr size_t kMostRanges = 5;
  std::vector<std::string> ranges;
  for (size_t i = 0; i < due.size(); ++i) {
    if (there.contains(due[i])) continue;
    size_t last = i;
    while (last + 1 < due.size() && !there.contains(due[last + 1])) ++last;
    if (ranges.size() == kMostRanges) return Join(ranges, ", ") + " and more";
    ranges.push_back(last == i ? fmt::format("{}", due[i])
                               : fmt::format("{} to {}", due[i], due[last]));
    i = last;
  }
  return Join(ranges, ", ");
}

std::string LackingOf(const char* what, const std::vector<int64_t>& due,
                      const std::vector<int64_t>& there) {
  const std::set<int64_t> found(there.begin(), there.end());
  const auto missing =
      std::ranges::count_if(due, [&](int64_t step) { return !found.contains(step); });
  if (missing == 0) return "";
  return fmt::format("{} of {} {} ({})", missing, due.size(), what, StepsText(due, found));
}

}  // namespace

KeptLines KeptLinesOf(std::string_view text, const DueLines& due) {
  KeptLines kept;
  int64_t number = 0;
  for (size_t end; (end = text.find('\n', kept.bytes)) != std::string_view::npos;) {
    ++number;
    const ReadLine line = Read(text.substr(kept.bytes, end - kept.bytes), due);
    if (line.kind == LineKind::kLater) break;
    if (line.kind == LineKind::kLog) kept.logs.push_back(line.step);
    if (line.kind == LineKind::kEvaluation) kept.evaluations.push_back(line.step);
    if (line.kind == LineKind::kUnreadable) kept.unreadable.push_back(number);
    kept.bytes = end + 1;
  }
  return kept;
}

std::string LackingText(const DueLines& due, const KeptLines& kept) {
  std::vector<std::string> lacking;
  for (std::string text : {LackingOf("lines of steps", due.logs, kept.logs),
                           LackingOf("evaluations", due.evaluations, kept.evaluations)}) {
    if (!text.empty()) lacking.push_back(std::move(text));
  }
  std::string text = lacking.empty() ? "" : "missing: " + Join(lacking, " and ");
  if (kept.unreadable.empty()) return text;
  if (!text.empty()) text += "; ";
  return text + fmt::format("{} unreadable (line {}{})",
                            kept.unreadable.size() == 1
                                ? "a line is"
                                : fmt::format("{} lines are", kept.unreadable.size()),
                            kept.unreadable.front(),
                            kept.unreadable.size() == 1 ? "" : " and later");
}

}  // namespace muster
