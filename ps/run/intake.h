// The start of a job whose workers are programs with their own model: before the run can be made,
// the server learns the variables and their initial values from the program of rank 0.
//
// Used on the loop thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint_reader.h"
#include "common/graph/graph.h"
#include "common/link/link.h"
#include "proto/config.pb.h"
#include "ps/record/recorder.h"
#include "ps/update/program_updater.h"

namespace muster {

// What the programs have sent by the end of the intake.
struct Taken {
  VariableLayout layout;
  config::Config config;                    // completed with what the program says
  std::vector<float> initial;               // laid out; empty for a resumed run
  std::vector<FromWorker> waiting;          // their Hellos, which the server must still answer
  std::unique_ptr<ProgramUpdater> updater;  // if optimizer.type is PROGRAM
};

class Intake {
 public:
  // `config_path`: where `config` was read. `interrupt_fd`: see Server. `resume`: the checkpoint
  // with the initial values, or null. All arguments must outlive this object, and `config` what
  // Await returns.
  Intake(const config::Config& config, const std::string& config_path, const std::string& token,
         ServerLink& link, Recorder& recorder, int interrupt_fd, const CheckpointReader* resume);

  // Waits until the variables and their values have arrived. Throws Error: kDeadline after
  // deadlines.start_s without progress, kNonfinite for an initial value, kInterrupted or
  // kTerminated for a signal.
  Taken Await();

 private:
  using Clock = std::chrono::steady_clock;

  void AwaitPrograms();
  void BeginUpdates();
  void Handle(FromWorker event);
  void OnHello(FromWorker event);
  void OnValues(const FromWorker& event);
  // Completes the config with batch, length and optimizer of the program. Throws Error(kUsage).
  config::Config Complete(const wire::Hello& hello) const;
  // The same for worker.precision: FP16 if the program wants a loss scale.
  void CompletePrecision(const wire::Hello& hello, config::Config& config) const;
  config::Optimizer CompleteOptimizer(const std::string& optimizer) const;
  void Refuse(PeerId peer, const std::string& why);
  // Asks the source for the next piece of the values.
  void Ask();
  bool IsComplete() const;
  void CheckTime(Clock::time_point now);
  // Tells the launcher and the waiting workers that the server is alive.
  void Beat();
  void CheckValues() const;

  const config::Config& config_;
  const std::string& config_path_;
  const std::string& token_;
  ServerLink& link_;
  Recorder& recorder_;
  const int interrupt_fd_;
  const CheckpointReader* const resume_;
  Clock::time_point progress_ = Clock::now();  // of the last piece of the values
  Clock::time_point next_beat_ = progress_;
  std::optional<PeerId> source_;  // whose variables these are
  size_t received_ = 0;           // floats
  Taken taken_;
};

}  // namespace muster
