// Threads that begin together and are timed together.
#pragma once

#include <barrier>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

namespace muster::bench {

// Owner: one thread, which works itself if the team is of one. Denormals are flushed in all.
class Team {
 public:
  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;

  int threads() const { return threads_; }
  // Seconds from when the first thread begins job(0 … threads - 1) until the last one has ended.
  double Time(const std::function<void(int thread)>& job);

 private:
  using Clock = std::chrono::steady_clock;
  struct Times {
    Clock::time_point began, ended;
  };
  void RunJob(int thread);

  const int threads_;
  const std::function<void(int)>* job_ = nullptr;  // null: the end
  std::barrier<> start_, stop_;
  std::vector<Times> times_;
  std::vector<std::jthread> members_;
};

// The part of `count` things that belongs to `thread` of `threads`: [begin, end).
struct Part {
  size_t begin, end;
};
Part PartOf(size_t count, int thread, int threads);

double Median(std::vector<double> values);

}  // namespace muster::bench
