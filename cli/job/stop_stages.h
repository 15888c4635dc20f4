// How a job is stopped: who is asked when, and when nobody is asked any more. Points in time, in
// seconds of the supervisor's clock; no process is touched here.
#pragma once

namespace muster {

inline constexpr double kNever = 1e300;

class StopStages {
 public:
  // A failure: the others may notice it by themselves for a while, which is shorter where they
  // may not know one another yet (`joined` is false).
  void BeginAfterFailure(double now, bool joined);
  // A failure that nobody else knows of.
  void BeginAtOnce(double now);
  // The server is gone, and the others' work with it.
  void BeginWithoutServer(double now);
  // Somebody wants the job to stop: the server first, so that it can write the last line.
  void BeginWithServer(double now);

  // The server is writing the run's state: for a little longer nobody is killed, all in
  // all 5 minutes at most.
  void WaitForServer(double now);

  // No more grace, at once or by and by.
  void Hurry(double now);
  void Kill(double now);

  // What is due, each thing once. `server_gone`: those who wait for the server to go first wait no
  // longer.
  struct Due {
    bool terminate_server = false, terminate_all = false, kill_all = false;
  };
  Due Take(double now, bool server_gone);

  double next() const;  // when something is due
  // Some process has not gone although it was killed.
  bool GivenUp(double now) const { return now >= give_up_at_; }

 private:
  void Begin(double terminate_server_at, double terminate_all_at);

  double terminate_server_at_ = kNever, terminate_all_at_ = kNever, kill_at_ = kNever;
  double give_up_at_ = kNever;
  double wait_until_ = kNever;  // at most; set when stopping begins
  bool server_first_ = false;
};

}  // namespace muster
