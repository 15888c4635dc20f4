#include "ps/tensorboard/event_records.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

#include "common/base/plain_file.h"
#include "common/base/resource_limits.h"
#include "ps/tensorboard/crc32c.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

template <typename T>
std::string LittleEndian(T value) {
  static_assert(std::endian::native == std::endian::little);
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

template <typename T>
T NumberAt(const std::string& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// Where reading a file came to its end.
struct End {
  uint64_t at = 0;       // where the last whole record ends
  bool damaged = false;  // what follows is no record, nor the beginning of one
};

// visit(event, where its record begins) returns whether to go on. A record whose event cannot be
// read is passed over.
template <typename Visit>
End ForEachEvent(const std::string& path, const Visit& visit) {
  constexpr uint64_t kHead = 8 + 4, kFrame = kHead + 4, kMostBytes = uint64_t{1} << 30;
  std::error_code error;
  // No record is longer than what is left of the file: what a length claims is not made room for.
  const uint64_t size = fs::file_size(path, error);
  End end;
  if (error) return end;
  std::ifstream file = ReadPlainFile(path);
  std::string head(kHead, '\0'), body;
  while (file.read(head.data(), static_cast<std::streamsize>(head.size()))) {
    const auto length = NumberAt<uint64_t>(head, 0);
    end.damaged =
        NumberAt<uint32_t>(head, 8) != MaskedCrc32c(head.substr(0, 8)) || length > kMostBytes;
    if (end.damaged || length + kFrame > size - end.at) return end;
    body.resize(length + 4);  // and the checksum
    if (!file.read(body.data(), static_cast<std::streamsize>(body.size()))) return end;
    const uint64_t begin = end.at;
    end.at += length + kFrame;
    tensorboard::Event event;
    if (NumberAt<uint32_t>(body, length) != MaskedCrc32c(body.substr(0, length)) ||
        !event.ParseFromArray(body.data(), static_cast<int>(length))) {
      continue;
    }
    if (!visit(event, begin)) return end;
  }
  return end;
}

// By age, as their names have it.
std::vector<std::string> EventFilesIn(const std::string& dir) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename().string().starts_with("events.out.tfevents.")) {
      paths.push_back(at->path());
    }
  }
  std::ranges::sort(paths);
  return paths;
}

// Not another program's.
bool IsOwn(const std::string& path) { return path.ends_with(".muster"); }

std::string Cut(const std::string& path, int64_t steps_done) {
  std::error_code error;
  uint64_t cut = 0;
  bool found = false;
  const End end = ForEachEvent(path, [&](const tensorboard::Event& event, uint64_t begin) {
    cut = begin;
    found = event.step() > steps_done;
    return !found;
  });
  if (!found && end.damaged) {
    return fmt::format(
        "{}: is damaged at byte {}: TensorBoard shows nothing of what is behind that", path,
        end.at);
  }
  if (!found) cut = end.at;
  const uint64_t size = fs::file_size(path, error);
  if (error || size <= cut || ::truncate(path.c_str(), static_cast<off_t>(cut)) == 0) return "";
  return fmt::format(
      "{}: cannot be cut to {} bytes: {}; steps after {} may be in it besides those "
      "that the run does again",
      path, cut, ErrorText(errno), steps_done);
}

}  // namespace

std::string FrameRecord(const std::string& event) {
  const std::string length = LittleEndian<uint64_t>(event.size());
  return length + LittleEndian(MaskedCrc32c(length)) + event + LittleEndian(MaskedCrc32c(event));
}

std::map<std::string, int64_t> LastStepsOf(const std::string& dir,
                                           const std::vector<std::string>& tags, int64_t most) {
  std::map<std::string, std::set<int64_t>> steps;
  for (const std::string& tag : tags) steps[tag];
  for (const std::string& path : EventFilesIn(dir)) {
    if (!IsOwn(path)) continue;
    ForEachEvent(path, [&](const tensorboard::Event& event, uint64_t) {
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
  std::map<std::string, int64_t> last;
  for (const auto& [tag, of] : steps) last[tag] = of.empty() ? -1 : *of.rbegin();
  return last;
}

bool HasGraph(const std::string& dir) {
  bool found = false;
  for (const std::string& path : EventFilesIn(dir)) {
    if (!IsOwn(path) || found) continue;
    ForEachEvent(path, [&](const tensorboard::Event& event, uint64_t) {
      found = !event.graph_def().empty();
      return !found;
    });
  }
  return found;
}

std::vector<std::string> CutEvents(const std::string& dir, int64_t steps_done) {
  std::vector<std::string> troubles;
  for (const std::string& path : EventFilesIn(dir)) {
    if (!IsOwn(path)) continue;
    if (std::string trouble = Cut(path, steps_done); !trouble.empty()) {
      troubles.push_back(std::move(trouble));
    }
  }
  return troubles;
}

}  // namespace muster
