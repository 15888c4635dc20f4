// A state of the model: a real server, whose link, clock and workers are played. It goes from one
// state to the next by actions, and from the same beginning by the same actions to the same state.
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
  // kSay: the server gets what the worker said first, or what it says next. kAhead: it says that,
  // and it is on its way. kRead: it reads what changes its work. kEnd: its connection ends.
  // kWait: a slice is given out again that was held back. kSilence: the server gives it up, and it
  // goes on. kRestart: the server and all workers end, and begin again; `worker` is the number of
  // checkpoints that are lost with them.
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

  // No fault: it comes sooner or later, if nothing else does.
  bool IsProgress() const { return kind <= Kind::kWait; }
  auto operator<=>(const Action&) const = default;
};
// "say:0", and back. Throws Error(kUsage).
std::string TextOf(const Action& action);
std::vector<Action> ParseActions(const std::string& text);

class ModelWorld {
 public:
  // What happens is told to `tell`, in words, if there is one.
  using Tell = std::function<void(const std::string& line)>;
  explicit ModelWorld(const ModelJob& job, Tell tell = {});
  ~ModelWorld();

  // What can happen next, in a fixed order. Nothing after the end.
  std::vector<Action> Enabled() const;
  // False: it changed nothing, and was none.
  bool Do(const Action& action);

  // States with the same text go on alike.
  std::string Text() const;
  // What is wrong with this state, or "".
  std::string Wrong() const;
  // Whatever has been said is said once more. What is wrong with what comes of it, or "". Nothing
  // can follow this.
  std::string WrongIfRepeated();
  // No worker can do anything. What is wrong with that, or "". Nothing can follow this.
  std::string WrongAtEnd();

 private:
  // A process that looks at its clock less often is thought to have been stopped itself.
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
  std::deque<uint32_t> to_start_;  // the ranks of processes that come
  Bounds left_;                    // faults
  int64_t long_until_ = 0;         // steps that have taken their time
  std::vector<Before> before_;
  bool over_ = false;  // the run: workers only say what they must to go
  std::string wrong_;
};

}  // namespace muster::testing
