#include "launch/data/transfer_meter.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

namespace muster {

TransferMeter::TransferMeter(std::FILE* out, int64_t start, int64_t total)
    : out_(out),
      live_(::isatty(::fileno(out)) == 1),
      start_(start),
      total_(std::max<int64_t>(total, 1)),
      begin_(std::chrono::steady_clock::now()),
      last_(begin_),
      latest_(start),
      tenth_(static_cast<int>(10 * start / total_)) {}

TransferMeter::~TransferMeter() {
  if (!live_ || latest_ == start_) return;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
  fmt::print(out_, "\r{}\n", Line(latest_, seconds.count()));
}

std::string TransferMeter::Line(int64_t bytes, double seconds) const {
  const double rate = seconds > 0 ? static_cast<double>(bytes - start_) / seconds : 0;
  std::string left;
  if (rate > 0 && bytes < total_) {
    const auto rest = static_cast<int64_t>(static_cast<double>(total_ - bytes) / rate);
    left = fmt::format("   {}:{:02} left", rest / 60, rest % 60);
  }
  return fmt::format("{:7.1f} of {:.1f} MB  {:3} %  {:6.1f} MB/s{:14}", bytes / 1e6, total_ / 1e6,
                     100 * bytes / total_, rate / 1e6, left);
}

void TransferMeter::Update(int64_t bytes) {
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::duration<double> seconds = now - begin_;
  latest_ = bytes;
  if (live_) {
    if (now - last_ < std::chrono::milliseconds(200)) return;
    last_ = now;
    fmt::print(out_, "\r{}", Line(bytes, seconds.count()));
  } else if (const int tenth = static_cast<int>(10 * bytes / total_); tenth > tenth_) {
    tenth_ = tenth;
    fmt::print(out_, "{}\n", Line(bytes, seconds.count()));
  }
  std::fflush(out_);
}

}  // namespace muster
