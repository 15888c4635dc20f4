#include "ps/tensorboard/event_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "common/base/process_identity.h"
#include "common/base/resource_limits.h"
#include "ps/tensorboard/crc32c.h"

namespace muster {
namespace {

template <typename T>
std::string LittleEndian(T value) {
  static_assert(std::endian::native == std::endian::little);
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

}  // namespace

double UnixTime() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string FrameRecord(const std::string& event) {
  const std::string length = LittleEndian<uint64_t>(event.size());
  return length + LittleEndian(MaskedCrc32c(length)) + event + LittleEndian(MaskedCrc32c(event));
}

struct EventFile::Shared {
  UniqueFd file;  // of the thread; not valid: nothing can be written any more
  std::mutex mutex;
  std::optional<std::string> trouble;

  void Fail(const std::string& what) {
    const std::scoped_lock lock(mutex);
    if (!trouble) trouble = what;
  }

  void Append(const std::string& path, const tensorboard::Event& event) {
    if (!file.valid()) return;
    const std::string record = FrameRecord(event.SerializeAsString());
    for (size_t done = 0; done < record.size();) {
      const ssize_t n = ::write(file.get(), record.data() + done, record.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        Fail(
            fmt::format("{}: cannot be written: {}; TensorBoard will see nothing later, the run "
                        "goes on",
                        path, ErrorText(errno)));
        file.Reset();
        return;
      }
      done += static_cast<size_t>(n);
    }
  }
};

namespace {

// Up to the first record that is not whole: its writer was killed.
template <typename Visit>
void ForEachEvent(const std::string& path, const Visit& visit) {
  std::error_code error;
  // No record is longer than what is left of the file: what a length claims is not made room for.
  uint64_t left = std::filesystem::file_size(path, error);
  if (error) return;
  std::ifstream file(path, std::ios::binary);
  std::string head(12, '\0'), body;
  while (file.read(head.data(), static_cast<std::streamsize>(head.size()))) {
    uint64_t length = 0;
    std::memcpy(&length, head.data(), sizeof length);
    constexpr uint64_t kFrame = 8 + 4 + 4, kMostBytes = uint64_t{1} << 30;
    if (length > kMostBytes || length + kFrame > left) return;
    left -= length + kFrame;
    body.resize(length + 4);  // and the checksum
    if (!file.read(body.data(), static_cast<std::streamsize>(body.size()))) return;
    tensorboard::Event event;
    if (!event.ParseFromArray(body.data(), static_cast<int>(length))) return;
    visit(event);
  }
}

// TensorBoard reads files in the order of their names, and this one counts from its first step on:
// it must come after all that are there, also of a server that was started in the same second.
int64_t TimeAfterAll(const std::string& dir) {
  constexpr std::string_view kPrefix = "events.out.tfevents.";
  auto time = static_cast<int64_t>(UnixTime());
  std::error_code error;
  for (std::filesystem::directory_iterator at(dir, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename();
    if (!name.starts_with(kPrefix)) continue;
    const int64_t other = std::strtoll(name.c_str() + kPrefix.size(), nullptr, 10);
    if (other < 9'999'999'999) time = std::max(time, other + 1);
  }
  return time;
}

}  // namespace

bool HaveEvent(const std::string& dir, const std::string& tag, int64_t step) {
  std::vector<std::string> paths;
  std::error_code error;
  for (std::filesystem::directory_iterator at(dir, error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().filename().string().starts_with("events.out.tfevents.")) {
      paths.push_back(at->path());
    }
  }
  std::ranges::sort(paths);
  bool have = false;
  for (const std::string& path : paths) {
    ForEachEvent(path, [&](const tensorboard::Event& event) {
      if (event.session_log().status() == tensorboard::SessionLog::START && event.step() <= step) {
        have = false;
      }
      have |= event.step() == step &&
              std::ranges::any_of(event.summary().value(),
                                  [&](const auto& value) { return value.tag() == tag; });
    });
  }
  return have;
}

EventFile::EventFile(const std::string& dir, int64_t steps_done, BackgroundThread& thread)
    : thread_(thread), shared_(std::make_shared<Shared>()) {
  const ProcessIdentity self = ThisProcess();
  path_ = fmt::format("{}/events.out.tfevents.{:010}.{}.{}.muster", dir, TimeAfterAll(dir),
                      self.host, self.pid);
  shared_->file.Reset(
      ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644));
  if (!shared_->file.valid()) {
    shared_->Fail(fmt::format("{}: cannot be created: {}; TensorBoard will see nothing of this run",
                              path_, ErrorText(errno)));
  }
  tensorboard::Event version;
  version.set_file_version("brain.Event:2");
  Write(std::move(version));
  tensorboard::Event start;
  start.set_step(steps_done + 1);  // of this one and later ones
  start.mutable_session_log()->set_status(tensorboard::SessionLog::START);
  Write(std::move(start));
}

EventFile::~EventFile() = default;

void EventFile::Write(tensorboard::Event event) {
  event.set_wall_time(UnixTime());
  const bool taken = thread_.Submit(
      [shared = shared_, path = path_, event = std::move(event)] { shared->Append(path, event); });
  if (!taken) {
    shared_->Fail(path_ + ": the disk is too slow: TensorBoard will miss some of this run");
  }
}

std::optional<std::string> EventFile::TakeTrouble() {
  const std::scoped_lock lock(shared_->mutex);
  if (!shared_->trouble || shared_->trouble->empty()) return std::nullopt;
  return std::exchange(*shared_->trouble, "");  // later ones would say the same
}

}  // namespace muster
