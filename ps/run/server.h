// The server of a job: the loop, with its link, clock, signals and timers. Who takes part is
// membership.h's business, what happens next run.h's, what is averaged aggregator.h's.
//
// One thread runs the loop and owns all state; a small pool does arithmetic on spans that it is
// handed. Workers come through a ServerLink. Every wait has a deadline.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/adaptive_spin.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/graph/graph.h"
#include "common/link/link.h"
#include "proto/config.pb.h"
#include "ps/members/membership.h"
#include "ps/record/recorder.h"
#include "ps/run/first_failure.h"
#include "ps/run/run.h"

namespace muster {

struct ServerResult {
  int64_t steps = 0;
  uint64_t weights_hash = 0;
  std::optional<double> test_accuracy;
  uint64_t dropped_messages = 0;  // did not fit the protocol, or came late or twice
  std::string trouble;            // what could not be kept on the disk, and why
};

class Server {
 public:
  // `config` is resolved (slices and threads are set). `interrupt_fd`, if not -1, is a signalfd:
  // SIGUSR1 asks for a checkpoint, SIGUSR2 says that the job has failed, and if the server is
  // stopped after that, its run has, too; any other one stops it. `resume`: where the run goes on
  // from, or null; it may go when this is made.
  Server(const config::Config& config, const std::string& token, std::unique_ptr<ServerLink> link,
         Recorder& recorder, int interrupt_fd = -1, const ResumePoint* resume = nullptr);

  // Runs the job to its end. Throws Error: kDeadline, kPeerFailed, kNonfinite, kTerminated, …
  // The workers have been told to stop, and, if training has begun, the final metrics line is
  // written, in any case.
  ServerResult Serve();
  // A round of the loop: waits a little for input, handles what has come, checks deadlines.
  void RunOnce();

  const Run& run() const { return run_; }
  Run& run() { return run_; }
  const Membership& members() const { return members_; }
  const FirstFailure& failure() const { return failure_; }
  // Losses of workers are known that have not been dealt with.
  size_t pending_losses() const { return losses_.size(); }

 private:
  using Clock = std::chrono::steady_clock;

  void AwaitInput();
  std::chrono::milliseconds Patience() const;
  void RunTimers(Clock::time_point now);
  void Extend(Clock::duration suspension);
  void CheckInterrupt();
  void StopAtBoundary();
  void TellOfSaving();
  void Receive(const FromWorker& event, Clock::time_point now);
  void OnHello(const FromWorker& event, Clock::time_point now);
  // Why the message does not fit, or "".
  std::string OnMessage(uint32_t rank, const FromWorker& event, Clock::time_point now);
  // Sends what waits in Membership.
  void Flush();
  // Kept until the message in hand is dealt with: what follows sends messages itself.
  void OnLost(uint32_t rank, ExitCode code, const std::string& why);
  void TakeLosses(Clock::time_point now);
  void OnGoodbye(uint32_t rank, Clock::time_point now);
  void OnFailure(uint32_t rank, const wire::Failure& failure);
  void Drop(const std::string& who, const std::string& why);
  // Tells everyone to stop and waits, for a while, until they have said Goodbye or are gone.
  void StopAll(bool completed, const std::string& reason);
  // After that: answers workers that come only now, while files are written.
  void TurnAway();
  // Keeps the run, which has ended early at a boundary, and waits until that is on the disk.
  void KeepLast();
  // Writes what the run leaves behind.
  void SaveModels();
  [[noreturn]] void EndFailed();
  ServerResult EndCompleted();

  const config::Config config_;
  const Graph graph_;
  Recorder& recorder_;
  const int interrupt_fd_;
  FirstFailure failure_;
  struct Loss {
    uint32_t rank, incarnation;
    ExitCode code;
    std::string why;
  };
  std::vector<Loss> losses_;
  std::vector<ToWorker> sending_;
  std::optional<JobFailure> interrupt_;  // the run stops at the next step's boundary, or …
  Clock::time_point stop_by_;            // … then
  bool job_failed_ = false;              // says who stops it
  Membership members_;
  Run run_;
  SuspensionDetector suspensions_{std::chrono::seconds(1)};
  AdaptiveSpin spin_;
  Clock::time_point next_timers_ = Clock::now();
  Clock::time_point next_heartbeat_ = Clock::now();
  Clock::time_point next_saving_;
  RareLine dropped_;
  std::unique_ptr<ServerLink> link_;  // last: gone before the memory that it sends from
};

}  // namespace muster
