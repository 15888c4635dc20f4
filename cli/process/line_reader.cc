#include "cli/process/line_reader.h"

#include <fcntl.h>

#include <cerrno>
#include <string_view>

namespace muster {

LineReader::LineReader(UniqueFd fd, size_t max_line_bytes)
    : fd_(std::move(fd)), max_line_bytes_(max_line_bytes) {
  ::fcntl(fd_.get(), F_SETFL, ::fcntl(fd_.get(), F_GETFL) | O_NONBLOCK);
}

void LineReader::Read(const std::function<void(const std::string&)>& on_line) {
  char buffer[16384];
  for (int round = 0; round < 64 && fd_.valid(); ++round) {
    ssize_t got = ::read(fd_.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) {
      fd_.Reset();
      if (!line_.empty() && !skipping_) on_line(line_);
      line_.clear();
      return;
    }
    std::string_view rest(buffer, static_cast<size_t>(got));
    while (!rest.empty()) {
      size_t newline = rest.find('\n');
      std::string_view part = rest.substr(0, newline);
      const bool is_long = line_.size() + part.size() > max_line_bytes_;
      if (!skipping_) line_ += part.substr(0, max_line_bytes_ - line_.size());
      if (!skipping_ && is_long) {
        on_line(line_);
        skipping_ = true;
        line_.clear();
      }
      if (newline == std::string_view::npos) break;
      if (!skipping_) on_line(line_);
      line_.clear();
      skipping_ = false;
      rest.remove_prefix(newline + 1);
    }
  }
}

}  // namespace muster
