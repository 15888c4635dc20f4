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
  // Seconds of job(repeat, 0 … count - 1), from when the first thread begins until the last one has
  // ended, divided by `repeats`. Once: the threads take the next piece as the server's pool does.
  // More often, for passes too short to be timed alone: each thread has its own pieces, and nobody
  // waits between one pass and the next.
  double TimeEach(size_t count, int repeats, const std::function<void(int, size_t)>& job);

 private:
  double Time(const std::function<void(int thread)>& job);

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

double Median(std::vector<double> values);

}  // namespace muster::bench
