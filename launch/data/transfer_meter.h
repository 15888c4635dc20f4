// How far a download is, for people.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace muster {

// On a terminal one live line: " 42.1 of 170.1 MB   24 %   3.2 MB/s   0:40 left". Elsewhere one
// plain line every 10 %. Used by one thread.
class TransferMeter {
 public:
  // `total` bytes, of which `start` were there before.
  TransferMeter(std::FILE* out, int64_t start, int64_t total);
  ~TransferMeter();  // ends the live line
  void Update(int64_t bytes);

 private:
  std::string Line(int64_t bytes, double seconds) const;

  std::FILE* const out_;
  const bool live_;
  const int64_t start_, total_;
  const std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point last_;
  int64_t latest_ = 0;
  int tenth_;  // of the last plain line
};

}  // namespace muster
