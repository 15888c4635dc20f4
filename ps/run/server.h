// The server of a job: the event loop with its link, clock, signals and timers. See membership.h
// for membership, run.h for the state of the run, aggregator.h for the gradients.
//
// The loop thread owns all state; a small pool does arithmetic on spans that the loop hands out.
// Workers connect through a ServerLink. Every wait has a deadline.
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
#include "ps/run/intake.h"
#include "ps/run/run.h"

namespace muster {

struct ServerResult {
  int64_t steps = 0;
  uint64_t weights_hash = 0;
  std::optional<double> test_accuracy;
  uint64_t dropped_messages = 0;  // messages that were invalid, late or duplicate
  std::string trouble;            // what could not be saved, and why
};

class Server {
 public:
  // `config` is resolved (slices and threads are set). `interrupt_fd`, if not -1, is a signalfd.
  // SIGUSR1 requests a checkpoint. SIGUSR2 reports that the job has failed, so a later stop is
  // recorded as a failure. Any other signal stops the server. `resume`: where the run resumes, or
  // null; used only by the constructor. `taken`: from the programs of a job with worker.program,
  // or null. `graph` is the network, or the programs' variables.
  Server(const config::Config& config, Graph graph, const std::string& token,
         std::unique_ptr<ServerLink> link, Recorder& recorder, int interrupt_fd = -1,
         const ResumePoint* resume = nullptr, Taken* taken = nullptr);

  // Call it before Serve: the start does not wait for these ranks.
  void StartWithout(const std::vector<int64_t>& ranks);

  // Runs the job to its end. Throws Error (kDeadline, kPeerFailed, kNonfinite, kTerminated, ...)
  // after telling the workers to stop and, if training has begun, writing the final metrics line.
  ServerResult Serve();
  // One round of the loop: waits briefly for input, handles it, and checks deadlines.
  void RunOnce();

  const Run& run() const { return run_; }
  Run& run() { return run_; }
  const Membership& members() const { return members_; }
  const FirstFailure& failure() const { return failure_; }

 private:
  using Clock = std::chrono::steady_clock;

  void AwaitInput();
  std::chrono::milliseconds Patience() const;
  void RunTimers(Clock::time_point now);
  void Extend(Clock::duration suspension);
  void CheckInterrupt();
  void StopAtBoundary();
  void TellOfSaving(bool waits_for_programs = false);
  void Receive(const FromWorker& event, Clock::time_point now);
  void OnHello(const FromWorker& event, Clock::time_point now);
  // Returns why the message is invalid, or "".
  std::string OnMessage(uint32_t rank, const FromWorker& event, Clock::time_point now);
  // Sends the messages that are queued in Membership.
  void Flush();
  // Queues the loss until the current message is handled, because handling a loss sends messages.
  void OnLost(uint32_t rank, ExitCode code, const std::string& why);
  void TakeLosses(Clock::time_point now);
  void OnGoodbye(uint32_t rank, Clock::time_point now);
  void OnFailure(uint32_t rank, const wire::Failure& failure);
  void Drop(const std::string& who, const std::string& why);
  // Tells all workers to stop and waits a limited time until they have said Goodbye or are gone.
  void StopAll(bool completed, const std::string& reason);
  // Handles what arrives after StopAll: programs still ask and tell. Waits at most this long.
  void ServeLate(std::chrono::milliseconds patience);
  void OnLate(const FromWorker& event, Clock::time_point now);
  void Depart(uint32_t rank, Clock::time_point now);
  // Waits until programs have run their code after the last step.
  void AwaitPrograms();
  // Saves a checkpoint of a run that ended early at a boundary, and waits for it.
  void KeepLast();
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
  std::vector<FromWorker> waiting_;  // arrived before the server was made
  std::vector<ToWorker> sending_;
  std::optional<JobFailure> interrupt_;  // why the run stops at the next step boundary
  Clock::time_point stop_by_;            // when the run stops even within a step
  bool job_failed_ = false;              // reported by SIGUSR2
  Membership members_;
  Run run_;
  std::unique_ptr<ProgramUpdater> updater_;  // if optimizer.type is PROGRAM
  SuspensionDetector suspensions_{std::chrono::seconds(1)};
  AdaptiveSpin spin_;
  Clock::time_point next_timers_ = Clock::now();
  Clock::time_point next_heartbeat_ = Clock::now();
  Clock::time_point next_saving_;
  RareLine dropped_;
  std::unique_ptr<ServerLink> link_;  // last: destroyed before the memory that it sends from
};

}  // namespace muster
