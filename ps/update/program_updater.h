// The process that updates the weights in a job whose program has an optimizer of its own
// (optimizer.type PROGRAM): one more copy of the program, on the server's host. It shares memory
// with the server: the server writes the mean gradient, the program the new weights.
//
// It belongs to the server. If it is killed, the server ends, too, so that the launcher restarts
// both from the checkpoint.
//
// Owner: the server, whose loop makes all calls. Another thread talks to the program.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "common/base/background_thread.h"
#include "common/base/error.h"
#include "common/graph/variable_layout.h"
#include "common/plan/step_plan.h"
#include "common/program/program_link.h"
#include "proto/config.pb.h"
#include "proto/wire.pb.h"
#include "ps/update/thread_pool.h"
#include "ps/update/told_values.h"

namespace muster {

class ProgramUpdater {
 public:
  // Starts the program, which finds its config in this file. `endpoint`: where workers connect; the
  // program does not. `config` must outlive this object. Throws Error(kUsage) if the program cannot
  // be started.
  ProgramUpdater(const config::Config& config, const std::string& config_path,
                 const std::string& endpoint);
  // Ends the process.
  ~ProgramUpdater();
  ProgramUpdater(const ProgramUpdater&) = delete;

  // Whether the program waits for Begin. Throws Error if it cannot.
  bool HasJoined();

  struct Start {
    StepPlan plan;
    int64_t first_step = 0;
    std::string state;  // from the checkpoint, or ""
  };
  // Takes the program into the run. `layout` and `hello`: a worker's. Throws Error(kRefused) if the
  // program has other variables or data.
  void Begin(const VariableLayout& layout, const wire::Hello& hello, Start start);
  // From now on, the program takes part, and results go to the pool's owner. `failed` is called
  // there at most once, with kProcessDied if the process was killed.
  // `values`: what the program may ask for; `tell` is called there with what it tells.
  void Attach(ThreadPool& pool, const ToldValues& values,
              std::function<void(const wire::Tell&)> tell,
              std::function<void(const Error&)> failed);

  // The shared memory. The program may change weights(), and reads gradient(), between Update and
  // its completion.
  std::span<float> weights() const { return link_->weights(); }
  std::span<float> gradient() const { return link_->gradient(); }

  // Has the program turn W(step) into W(step + 1). `done` is called only if it succeeds.
  void Update(int64_t step, std::function<void(double learning_rate)> done);
  // Fetches the program's state, after the updates before, also while it waits for a value, if it
  // may save then. Null if that fails.
  using State = std::shared_ptr<const std::string>;
  void Save(int64_t step, std::function<void(State)> done);
  // The run is complete: lets the program end.
  void End(int64_t steps);
  // After End: whether the process has ended. `trouble`: a warning, or "".
  bool HasEnded(std::string& trouble);

 private:
  void Spawn(const std::string& config_path, const std::string& endpoint);
  // Runs the job in the thread, unless an earlier one has failed.
  void Submit(std::function<void()> job);
  struct Saving {
    int64_t step = 0;
    std::function<void(State)> done;  // null: called
  };
  // The following run in the thread.
  void Work(program::WorkKind kind, int64_t step);
  // Whether Save wants the state.
  bool IsSaving();
  // Fetches the state that Save wants. Returns whether it wanted one.
  bool Fetch();
  program::Kind Receive(std::string& body);
  // Answers when the value is told. This process never computes one.
  void Answer(const ProgramLink::Received& received);
  void Tell(const ProgramLink::Received& received);
  // Whether the program has said this, which Receive does not return.
  bool Talks(const ProgramLink::Received& received);
  void SendStart();
  std::string Await(program::Kind kind);
  // Serves the program, which may run its own code for long, until it waits for work.
  void AwaitNext();
  void Fail(const Error& error);
  // Returns how the process has ended.
  Error Lost(const Error& error);
  void CopyStatistics() const;

  const config::Config& config_;
  std::atomic<pid_t> pid_ = -1;
  std::optional<ProgramLink> link_;
  std::optional<ProgramDescription> description_;  // once joined_
  std::optional<Error> error_;                     // once failed_
  std::atomic<bool> joined_{false}, failed_{false}, closing_{false}, told_end_{false};
  VariableLayout layout_;
  Start start_;
  ThreadPool* pool_ = nullptr;
  const ToldValues* values_ = nullptr;
  std::function<void(const wire::Tell&)> tell_;
  std::function<void(const Error&)> on_failure_;
  std::atomic<int> wanted_{0};  // work that has been submitted and has not begun
  std::mutex mutex_;
  std::shared_ptr<Saving> saving_;  // guarded by mutex_; null: begun
  std::optional<BackgroundThread> thread_{std::in_place};
};

}  // namespace muster
