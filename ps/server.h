// The server: owns the master variables and decides what happens next.
//
// One thread runs the loop and owns all state; a small pool does arithmetic on spans that it is
// handed. Workers come through a ServerLink. Every wait has a deadline.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/adaptive_spin.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/own_gap.h"
#include "common/graph/graph.h"
#include "common/link/link.h"
#include "common/plan/assignment.h"
#include "common/plan/chunks.h"
#include "common/plan/step_plan.h"
#include "proto/config.pb.h"
#include "ps/aggregator.h"
#include "ps/evaluation.h"
#include "ps/optimizer.h"
#include "ps/progress.h"
#include "ps/reporter.h"
#include "ps/roster.h"
#include "ps/schedule.h"
#include "ps/segments.h"
#include "ps/step_losses.h"
#include "ps/thread_pool.h"
#include "ps/variables.h"

namespace muster {

struct ServerResult {
  int64_t steps = 0;
  uint64_t weights_hash = 0;
  std::optional<double> test_accuracy;
  uint64_t dropped_messages = 0;  // did not fit the protocol, or came late or twice
};

class Server {
 public:
  // `config` is resolved (slices and threads are set). `interrupt_fd`, if not -1, becomes readable
  // when the server must stop (a signalfd).
  Server(const config::Config& config, const std::string& token, std::unique_ptr<ServerLink> link,
         Reporter& reporter, int interrupt_fd = -1);
  ~Server();

  // Runs the job to its end. Throws Error: kDeadline, kPeerFailed, kNonfinite, kTerminated, …
  // The workers have been told to stop, and, if training has begun, the final metrics line is
  // written, in any case.
  ServerResult Run();

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase { kGathering, kPreparing, kTraining, kStopping };

  // One turn of the loop: waits a little for input, handles all there is, checks deadlines.
  void Turn();
  void AwaitInput();
  void KeepHouse();
  void Receive(const FromWorker& event);
  void OnHello(PeerId peer, const wire::WorkerMessage& message);
  void OnMessage(uint32_t rank, const wire::WorkerMessage& message, const Payload& payload);
  void OnSliceLoss(uint32_t rank, const wire::SliceLoss& loss);
  void OnGradient(uint32_t rank, const wire::GradientPart& part, const Payload& payload);
  void OnEvaluatedBlock(uint32_t rank, const wire::EvaluatedBlock& block);
  void OnLost(uint32_t rank);
  void Drop(const std::string& who, const std::string& why);
  // Somebody who may not join: a line, here and at the launcher.
  void Refuse(const std::string& who, const std::string& why);

  void WelcomeAll();  // a. the roster is complete
  void Welcome(uint32_t rank);
  void WelcomeAgain(uint32_t rank);
  void BeginStep(int64_t step);  // b.
  void OrderNext(int64_t step);  //    what comes after `step`
  void OrderStep(int64_t step);
  void EndStepIfComplete();  // d.
  void EndEvaluation();
  void StopEarly(const EvaluationResult& result);
  bool EvaluationIsDueAfter(int64_t step) const;
  void Broadcast(wire::ServerMessage& message, std::span<const std::byte> tensor = {});
  void SendTo(uint32_t rank, wire::ServerMessage& message, std::span<const std::byte> tensor = {});
  void PublishChunk(int64_t version, size_t chunk);
  bool AverageIsDue(int64_t version) const;

  bool LiveLineIsDue();  // a line for a person's eyes, at most five a second

  void CheckFinite() const;
  void CountSkippedStep();
  void CheckDeadlines();
  void Forgive(Clock::duration own_gap);
  void CheckInterrupt();
  void SendBeats();
  void StopAll(bool completed, const std::string& reason);
  std::string Names(const std::vector<uint32_t>& ranks) const;
  wire::ServerMessage NewMessage() const;

  const config::Config config_;
  const Graph graph_;
  Reporter& reporter_;
  const int interrupt_fd_;
  Roster roster_;
  const Optimizer optimizer_;
  const std::vector<Segment> segments_;
  Variables variables_;
  ThreadPool pool_;  // joined before the memory goes that its threads use
  Aggregator aggregator_;
  Assignment assignment_;
  StepPlan plan_;
  Phase phase_ = Phase::kGathering;
  int64_t step_ = 0;
  LearningRateSchedule schedule_;
  double learning_rate_ = 0;
  StepLosses losses_;
  std::optional<Nonfinite> bad_loss_;  // of this step; SKIP_STEP
  int64_t skipped_in_a_row_ = 0;
  std::optional<Evaluation> evaluation_;
  Progress progress_;
  Clock::time_point began_ = Clock::now();
  Clock::time_point step_deadline_began_ = Clock::now();
  OwnGap own_gap_{std::chrono::seconds(1)};
  AdaptiveSpin spin_;
  Clock::time_point next_housekeeping_ = Clock::now();
  Clock::time_point next_beat_ = Clock::now();
  Clock::time_point next_live_ = Clock::now();
  Clock::time_point next_waiting_;
  std::optional<uint32_t> blamed_;  // the rank that a failure is about
  RareLine dropped_, refused_;
  bool done_ = false;
  std::unique_ptr<ServerLink> link_;  // last: gone before the memory that it sends from
};

}  // namespace muster
