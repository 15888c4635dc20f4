// The server of a job: the loop, and what goes from whom to whom. Who takes part is membership.h's,
// what happens next coordinator.h's, what is averaged aggregator.h's.
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
#include "ps/coordinator.h"
#include "ps/first_failure.h"
#include "ps/membership.h"
#include "ps/reporter.h"

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
  // from, or null; it may go when this is made. `evaluate_only`: there are no steps;
  // run.initial_weights are evaluated once.
  Server(const config::Config& config, const std::string& token, std::unique_ptr<ServerLink> link,
         Reporter& reporter, int interrupt_fd = -1, const ResumePoint* resume = nullptr,
         bool evaluate_only = false);
  ~Server();

  // Runs the job to its end. Throws Error: kDeadline, kPeerFailed, kNonfinite, kTerminated, …
  // The workers have been told to stop, and, if training has begun, the final metrics line is
  // written, in any case.
  ServerResult Run();

 private:
  friend class ServerProbe;  // tests/protocol looks at all of it
  using Clock = std::chrono::steady_clock;

  // Waits a little for input, handles all there is, checks deadlines.
  void RunOnce();
  void AwaitInput();
  std::chrono::milliseconds Patience() const;
  void RunTimers();
  void Forgive(Clock::duration suspension);
  void CheckInterrupt();
  void StopAtBoundary();
  void KeepLast();
  void AddSaved(const std::string& lost_models, events::Summary& summary);
  void Receive(const FromWorker& event);
  void OnHello(const FromWorker& event);
  // Why the message does not fit, or "".
  std::string OnMessage(uint32_t rank, const FromWorker& event);
  // Kept until the message in hand is dealt with: what follows sends messages itself.
  void OnLost(uint32_t rank, ExitCode code, const std::string& why);
  void TakeLosses();
  std::string OnGoodbye(uint32_t rank);
  void OnFailure(uint32_t rank, const wire::Failure& failure);
  void Drop(const std::string& who, const std::string& why);
  // Writes what the run leaves behind. What could not be written, or "".
  std::string SaveModels();
  events::Summary SummaryOf(events::Summary::End end) const;
  [[noreturn]] void EndFailed();
  ServerResult EndCompleted();

  const config::Config config_;
  const Graph graph_;
  Reporter& reporter_;
  const int interrupt_fd_;
  FirstFailure failure_;
  struct Loss {
    uint32_t rank, incarnation;
    ExitCode code;
    std::string why;
  };
  std::vector<Loss> losses_;
  std::optional<JobFailure> interrupt_;  // the run stops at the next step's boundary, or …
  Clock::time_point stop_by_;            // … then
  bool job_failed_ = false;              // says who stops it
  Membership members_;
  Coordinator coordinator_;
  SuspensionDetector suspensions_{std::chrono::seconds(1)};
  AdaptiveSpin spin_;
  Clock::time_point next_timers_ = Clock::now();
  Clock::time_point next_heartbeat_ = Clock::now();
  RareLine dropped_;
  std::unique_ptr<ServerLink> link_;  // last: gone before the memory that it sends from
};

}  // namespace muster
