#include "ps/tensorboard/event_records.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <system_error>

#include "common/base/fd.h"
#include "common/base/records.h"
#include "common/base/resource_limits.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// visit(event, start of its record) returns whether to continue. Skips unreadable events.
template <typename Visit>
RecordsEnd ForEachEvent(const std::string& path, const Visit& visit) {
  return ForEachRecord(path, 0, [&](std::string_view record, uint64_t at) {
    tensorboard::Event event;
    const bool readable = event.ParseFromArray(record.data(), static_cast<int>(record.size()));
    return !readable || visit(event, at);
  });
}

// The event files of Muster, sorted by name and therefore by age.
std::vector<std::string> EventFilesIn(const std::string& dir) {
  std::vector<std::string> paths;
  std::error_code error, ignored;
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    const bool is_ours = name.starts_with("events.out.tfevents.") && name.ends_with(".muster");
    if (is_ours && at->is_regular_file(ignored)) paths.push_back(at->path());
  }
  std::ranges::sort(paths);
  return paths;
}

std::string Cut(const std::string& path, int64_t steps_done) {
  std::error_code error;
  uint64_t cut = 0;
  bool found = false;
  const RecordsEnd end = ForEachEvent(path, [&](const tensorboard::Event& event, uint64_t begin) {
    cut = begin;
    found = event.step() > steps_done;
    return !found;
  });
  if (!found && end.damaged) {
    return fmt::format("{}: is damaged at byte {}: TensorBoard ignores the rest of the file", path,
                       end.at);
  }
  if (!found) cut = end.at;
  const uint64_t size = fs::file_size(path, error);
  if (error || size <= cut) return "";
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.valid() && ::ftruncate(file.get(), static_cast<off_t>(cut)) == 0) return "";
  return fmt::format(
      "{}: cannot be truncated to {} bytes: {}; steps after {} may appear twice in TensorBoard",
      path, cut, ErrorText(errno), steps_done);
}

}  // namespace

EarlierEvents ReadEarlierEvents(const std::string& dir, const std::vector<std::string>& tags,
                                int64_t most) {
  EarlierEvents earlier;
  std::map<std::string, std::set<int64_t>> steps;
  for (const std::string& tag : tags) steps[tag];
  for (const std::string& path : EventFilesIn(dir)) {
    ForEachEvent(path, [&](const tensorboard::Event& event, uint64_t) {
      earlier.has_graph |= !event.graph_def().empty();
      if (event.session_log().status() == tensorboard::SessionLog::START) {
        for (auto& [tag, of] : steps) of.erase(of.lower_bound(event.step()), of.end());
      }
      for (const auto& value : event.summary().value()) {
        const auto found = steps.find(value.tag());
        if (found != steps.end() && event.step() <= most) found->second.insert(event.step());
      }
      return true;
    });
  }
  for (const auto& [tag, of] : steps) earlier.last_steps[tag] = of.empty() ? -1 : *of.rbegin();
  return earlier;
}

std::vector<std::string> CutEvents(const std::string& dir, int64_t steps_done) {
  std::vector<std::string> troubles;
  for (const std::string& path : EventFilesIn(dir)) {
    if (std::string trouble = Cut(path, steps_done); !trouble.empty()) {
      troubles.push_back(std::move(trouble));
    }
  }
  return troubles;
}

}  // namespace muster
