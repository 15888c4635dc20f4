#include "ps/record/status_page.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/records.h"
#include "common/base/resource_limits.h"
#include "common/events/event_line.h"
#include "common/events/event_log.h"

namespace muster {
namespace {

template <typename Clock>
double Now() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

void LoadMeter::Put(events::Status::Server& server) {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const double wall = Now<std::chrono::steady_clock>();
  const double cpu = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  server.set_bytes(ResidentBytes().value_or(0));
  // The kernel updates its maximum late.
  server.set_peak_bytes(std::max(server.bytes(), int64_t{1024} * usage.ru_maxrss));
  if (wall_s_ > 0 && wall > wall_s_) server.set_cores((cpu - cpu_s_) / (wall - wall_s_));
  wall_s_ = wall;
  cpu_s_ = cpu;
}

StatusPage::StatusPage(const std::string& path) {
  if (path.empty()) return;
  fd_ = OpenPlainFile(path, "a plain file", O_WRONLY | O_NOFOLLOW);
  if (!fd_.valid()) {
    throw Error(ExitCode::kFailure, "{}: cannot be opened: {}", path, ErrorText(errno));
  }
  if (const auto status = ReadStatusPage(path)) number_ = status->number();
}

void StatusPage::Write(events::Status status) {
  if (!wanted()) return;
  status.set_number(++number_);
  status.set_unix_time(Now<std::chrono::system_clock>());
  events::Status::Server& server = *status.mutable_server();
  server.set_host(self_.host);
  server.set_pid(self_.pid);
  server.set_started(self_.started);
  load_.Put(server);
  MakeUtf8(status);
  const std::string frame = FrameRecord(status.SerializeAsString());
  if (frame.size() > kStatusPage) return;
  const auto write = [&](int64_t page) {
    const auto at = static_cast<off_t>(static_cast<uint64_t>(page % 2) * kStatusPage);
    return ::pwrite(fd_.get(), frame.data(), frame.size(), at);
  };
  const ssize_t n = write(number_);
  // A page that is torn, for example on a full disk, is the next one to be written.
  if (n != std::ssize(frame)) {
    --number_;
  } else if (!std::exchange(has_both_, true)) {
    (void)write(number_ + 1);  // takes its place on the disk, which may be full a second later
  }
  // NFS writes a file back when one of its descriptors is closed.
  if (const int copy = ::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0); copy >= 0) ::close(copy);
}

}  // namespace muster
