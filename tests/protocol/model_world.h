// A state of the model: a real server with a simulated link, clock and workers. Actions lead to
// other states. The same actions from the start always lead to the same state.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/link/link.h"
#include "ps/record/recorder.h"
#include "ps/run/server.h"
#include "tests/protocol/model_checkpoints.h"
#include "tests/protocol/model_worker.h"
#include "tests/protocol/scripted_clock.h"
#include "tests/protocol/server_probe.h"

namespace muster::testing {

struct Action {
  // kSay: the server receives the worker's oldest undelivered message, or its next one. kAhead: the
  // worker sends a message without delivery. kRead: it reads messages that change its work. kEnd:
  // its connection ends. kWait: a delayed slice is assigned again. kSilence: the server drops the
  // worker, which continues. kRestart: the server and all workers restart; `worker` is the number
  // of lost checkpoints.
  enum class Kind : uint8_t {
    kStart,
    kSay,
    kRead,
    kWait,
    kAhead,
    kEnd,
    kSilence,
    kLeave,
    kStall,
    kJoin,
    kRestart
  };
  Kind kind = Kind::kStart;
  uint8_t worker = 0;

  // True if it is not a fault. Such actions happen sooner or later.
  bool IsProgress() const { return kind <= Kind::kWait; }
  auto operator<=>(const Action&) const = default;
};
// Converts an action to text such as "say:0", and back. Throws Error(kUsage).
std::string TextOf(const Action& action);
std::vector<Action> ParseActions(const std::string& text);

class ModelWorld {
 public:
  // Called with descriptions of events.
  using Tell = std::function<void(const std::string& line)>;
  explicit ModelWorld(const ModelJob& job, Tell tell = {});
  ~ModelWorld();

  // The possible actions, in a fixed order. Empty after the end.
  std::vector<Action> Enabled() const;
  // Returns false if the action was impossible and changed nothing.
  bool Do(const Action& action);

  // States with equal texts have equal futures.
  std::string Text() const;
  // The error in this state, or "".
  std::string Wrong() const;
  // Repeats all messages so far and returns the resulting error, or "". The world must not be used
  // afterwards.
  std::string WrongIfRepeated();
  // Checks a state in which no worker can do anything. Returns the error, or "". The world must not
  // be used afterwards.
  std::string WrongAtEnd();

 private:
  // A process that looks at its clock less often assumes that it was suspended itself.
  static constexpr std::chrono::milliseconds kTick{900};
  class Link;
  struct Before {
    PeerId peer;
    Saying saying;
  };

  void Start(std::optional<uint32_t> rank);
  void Deliver(ModelWorker& worker, const Saying& saying);
  void End(ModelWorker& worker);
  void Silence(ModelWorker& worker);
  void Serve(const ResumePoint* from);
  void Restart(size_t lost);
  void RunOnce();
  void Replace(std::optional<uint32_t> rank);
  void Stall();
  void Pass(std::chrono::milliseconds time);
  void Hand(FromWorker event);
  void Settle();
  void CheckSeats();
  void Fail(const std::string& what);
  void Say(const std::string& line) const {
    if (tell_) tell_(line);
  }
  SendResult OnSent(PeerId peer, const wire::ServerMessage& message,
                    std::span<const std::byte> tensor);
  std::optional<FromWorker> Farewell();
  PeerId PeerOf(const ModelWorker& worker) const { return worker.number() + 1; }
  std::string WhoIs(const ModelWorker& worker) const;
  ModelWorker::Names Names() const;

  const ModelJob& job_;
  const Tell tell_;
  ScriptedClock clock_;
  ModelCheckpoints checkpoints_;
  std::unique_ptr<Recorder> recorder_;
  Link* link_ = nullptr;
  std::unique_ptr<Server> server_;
  std::unique_ptr<ServerProbe> probe_;
  std::deque<std::unique_ptr<ModelWorker>> workers_;
  std::deque<uint32_t> to_start_;  // the ranks of processes that will start
  Bounds left_;                    // faults
  int64_t long_until_ = 0;         // steps that took long
  std::vector<Before> before_;
  bool over_ = false;  // the run has ended, and workers only leave
  std::string wrong_;
};

}  // namespace muster::testing
