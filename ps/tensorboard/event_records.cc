#include "ps/tensorboard/event_records.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/resource_limits.h"

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

// Where reading a file stopped.
struct End {
  uint64_t at = 0;       // end of the last whole record
  bool damaged = false;  // followed by something other than a (possibly incomplete) record
};

// visit(event, start of its record) returns whether to continue. Skips unreadable events.
template <typename Visit>
End ForEachEvent(const std::string& path, const Visit& visit) {
  constexpr uint64_t kHead = 8 + 4, kFrame = kHead + 4, kMostBytes = uint64_t{1} << 30;
  std::error_code error;
  // Lengths are limited to the rest of the file, so that a corrupt length allocates nothing.
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
    body.resize(length + 4);  // including the checksum
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

// The event files of Muster, sorted by name and therefore by age.
std::vector<std::string> EventFilesIn(const std::string& dir) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    if (name.starts_with("events.out.tfevents.") && name.ends_with(".muster")) {
      paths.push_back(at->path());
    }
  }
  std::ranges::sort(paths);
  return paths;
}

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

std::string FrameRecord(const std::string& event) {
  const std::string length = LittleEndian<uint64_t>(event.size());
  return length + LittleEndian(MaskedCrc32c(length)) + event + LittleEndian(MaskedCrc32c(event));
}

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

namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // 0x1edc6f41 with its bits reversed

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = MakeTable();

}  // namespace

// Processing one byte at a time is fast enough for a few kilobytes per interval.
uint32_t Crc32c(std::string_view bytes) {
  uint32_t crc = ~0U;
  for (const char c : bytes) crc = kTable[(crc ^ static_cast<uint8_t>(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

uint32_t MaskedCrc32c(std::string_view bytes) { return std::rotr(Crc32c(bytes), 15) + 0xa282ead8; }

}  // namespace muster
