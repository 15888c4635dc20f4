#include "launch/job/member_text.h"

#include <fmt/core.h>

#include <algorithm>

#include "launch/text/units.h"

namespace muster {
namespace {

using Change = events::MemberChange;

constexpr size_t kMostNamed = 3;

const char* Word(Change::Kind kind) {
  switch (kind) {
    case Change::LOST:
      return "Lost";
    case Change::LEFT:
      return "Left by";
    case Change::JOINED:
      return "Joined by";
    default:
      return "Late and fenced:";
  }
}

// "rank 1, step 120: killed by signal 9; rank 0, step 300: …; and 2 more"
std::string Named(const events::Summary& summary, Change::Kind kind, int64_t count,
                  const std::map<int64_t, std::string>& ends) {
  std::string text;
  size_t named = 0;
  for (const Change& change : summary.changes()) {
    if (change.kind() != kind || named == kMostNamed) continue;
    ++named;
    const auto end = ends.find(change.pid());
    std::string why = end != ends.end() && kind == Change::LOST ? end->second : change.why();
    if (kind == Change::FENCED) why.clear();
    text += fmt::format("{}rank {}, step {}{}", text.empty() ? "" : "; ", change.rank(),
                        FormatCount(change.at().step()), why.empty() ? "" : ": " + why);
  }
  const int64_t more = count - static_cast<int64_t>(named);
  if (more > 0) text += fmt::format("; and {} more", FormatCount(more));
  return text;
}

// How many were lost whose rank another one has taken since. Others join as well: who was late and
// comes back, who has left, who is one more.
int64_t Replaced(const events::Summary& summary) {
  std::map<int64_t, Change::Kind> last;  // of each rank
  int64_t losses = 0, replaced = 0;
  for (const Change& change : summary.changes()) {
    const auto before = last.find(change.rank());
    const bool was_lost = before != last.end() && before->second == Change::LOST;
    if (change.kind() == Change::JOINED && was_lost) ++replaced;
    if (change.kind() == Change::LOST) ++losses;
    last[change.rank()] = change.kind();
  }
  if (losses == summary.workers_lost()) return replaced;
  // Not all of them are told one by one.
  return std::max<int64_t>(0, summary.workers_joined() - summary.workers_fenced());
}

}  // namespace

std::string ChangeLine(const Change& change) {
  std::string text = fmt::format("{} rank {} (pid {}) at step {}", Word(change.kind()),
                                 change.rank(), change.pid(), FormatCount(change.at().step()));
  if (!change.why().empty() && change.kind() != Change::FENCED) text += ": " + change.why();
  if (change.slices() > 0) text += "; others compute " + Plural(change.slices(), "slice");
  if (change.blocks() > 0) text += "; others evaluate " + Plural(change.blocks(), "block");
  return text + fmt::format("; {} now", Plural(change.workers(), "worker"));
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
  return fmt::format("changed {}; since step {} {}",
                     count == 1 ? "once" : fmt::format("{} times", FormatCount(count)),
                     FormatCount(last.from_step()), text);
}

std::vector<std::string> ChangesTexts(const events::Summary& summary,
                                      const std::map<int64_t, std::string>& ends) {
  std::vector<std::string> texts;
  if (const int64_t lost = summary.workers_lost(); lost > 0) {
    const int64_t came = Replaced(summary);
    const char* const what = came >= lost ? "lost and replaced"
                             : came > 0   ? "lost, some of them replaced"
                                          : "lost";
    texts.push_back(fmt::format("{} {} ({})", Plural(lost, "worker"), what,
                                Named(summary, Change::LOST, lost, ends)));
  }
  if (const int64_t fenced = summary.workers_fenced(); fenced > 0) {
    texts.push_back(fmt::format("late {}, others did the work ({})",
                                fenced == 1 ? "once" : fmt::format("{} times", FormatCount(fenced)),
                                Named(summary, Change::FENCED, fenced, {})));
  }
  if (const int64_t left = summary.workers_left(); left > 0) {
    texts.push_back(
        fmt::format("{} left ({})", FormatCount(left), Named(summary, Change::LEFT, left, {})));
  }
  return texts;
}

}  // namespace muster
