// A team of threads that start together and are timed together.
#pragma once

#include <barrier>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

namespace muster::bench {

// Owned by one thread, which does the work itself in a team of one. All threads flush denormals.
class Team {
 public:
  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;

  int threads() const { return threads_; }
  // Returns the duration of job(repeat, 0 … count - 1) in seconds: the time from the first thread's
  // start to the last thread's end, divided by `repeats`. With 1 repeat, threads take pieces
  // dynamically, as in the server's pool. With more repeats, for passes that are too short to time
  // separately, each thread has fixed pieces and does not wait between passes.
  double TimeEach(size_t count, int repeats, const std::function<void(int, size_t)>& job);

 private:
  double Time(const std::function<void(int thread)>& job);

  using Clock = std::chrono::steady_clock;
  struct Times {
    Clock::time_point began, ended;
  };
  void RunJob(int thread);

  const int threads_;
  const std::function<void(int)>* job_ = nullptr;  // null: exit
  std::barrier<> start_, stop_;
  std::vector<Times> times_;
  std::vector<std::jthread> members_;
};

double Median(std::vector<double> values);

}  // namespace muster::bench
