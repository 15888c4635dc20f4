#include "ps/reporter.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "common/base/resource_limits.h"

namespace muster {
namespace {

std::string UtcNow() {
  const auto now = std::chrono::system_clock::now();
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  const auto seconds = static_cast<std::time_t>(ms / 1000);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
  return fmt::format("{}.{:03}Z", text, ms % 1000);
}

std::string Dump(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

Reporter::Reporter(const std::string& metrics_path, int event_fd)
    : metrics_path_(metrics_path), event_fd_(event_fd) {
  if (!metrics_path.empty()) {
    metrics_fd_ =
        ::open(metrics_path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (metrics_fd_ < 0) {
      throw Error(ExitCode::kFailure, "{}: cannot be created: {}", metrics_path, ErrorText(errno));
    }
  }
  if (event_fd_ >= 0) ::fcntl(event_fd_, F_SETFL, ::fcntl(event_fd_, F_GETFL) | O_NONBLOCK);
}

Reporter::~Reporter() {
  if (metrics_fd_ >= 0) ::close(metrics_fd_);
}

void Reporter::Metrics(nlohmann::ordered_json line) {
  if (metrics_fd_ < 0) return;
  nlohmann::ordered_json stamped;
  stamped["time"] = UtcNow();
  stamped.update(line);
  const std::string text = Dump(stamped);
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(metrics_fd_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      throw Error(ExitCode::kFailure, "{}: cannot be written: {}", metrics_path_, ErrorText(errno));
    }
    done += static_cast<size_t>(n);
  }
  WarnIfRemoved();
}

void Reporter::WarnIfRemoved() {
  struct stat status {};
  if (removal_reported_ || ::fstat(metrics_fd_, &status) != 0 || status.st_nlink > 0) return;
  removal_reported_ = true;
  Event("warning", {{"message", fmt::format("{} has been removed: the run goes on, but what it "
                                            "writes there is lost",
                                            metrics_path_)}});
}

void Reporter::Event(const char* name, nlohmann::ordered_json event, Priority priority) {
  if (event_fd_ < 0) return;
  nlohmann::ordered_json named;
  named["event"] = name;
  named.update(event);
  if (priority == Priority::kMust || unsent_.empty()) unsent_ += Dump(named);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (!unsent_.empty()) {
    const ssize_t n = ::write(event_fd_, unsent_.data(), unsent_.size());
    if (n > 0) {
      unsent_.erase(0, static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      if (priority == Priority::kProgress || std::chrono::steady_clock::now() > deadline) return;
      pollfd ready{event_fd_, POLLOUT, 0};
      (void)::poll(&ready, 1, 100);
    } else if (errno != EINTR) {
      event_fd_ = -1;  // the launcher is gone; its death ends this process in another way
      unsent_.clear();
      return;
    }
  }
}

}  // namespace muster
