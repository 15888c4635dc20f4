// Faults of a model, and the reactions of a launcher.
#include <fmt/core.h>

#include "tests/protocol/model_world.h"

namespace muster::testing {

using std::chrono::milliseconds;

// Its last messages are lost with it.
void ModelWorld::End(ModelWorker& worker) {
  Say(WhoIs(worker) + " has ended, and the server notices it");
  const std::optional<uint32_t> rank = probe_->roster().RankOf(PeerOf(worker));
  worker.End();
  worker.in_flight().clear();
  Hand({FromWorker::Kind::kLost, PeerOf(worker), {}, {}});
  Replace(rank);
}

// The server drops a worker that is silent or disconnected, while the worker continues.
void ModelWorld::Silence(ModelWorker& worker) {
  Say(WhoIs(worker) + " is cut off, and the server drops it");
  const std::optional<uint32_t> rank = probe_->roster().RankOf(PeerOf(worker));
  Hand({FromWorker::Kind::kLost, PeerOf(worker), {}, {}});
  const std::string text = probe_->Text();
  for (int i = 0; i < 3 && worker.CanSay(); ++i) {
    const Saying late = worker.Say();
    Say("… " + late.words + ", too late");
    Hand({FromWorker::Kind::kMessage, PeerOf(worker), late.message, late.payload});
  }
  worker.End();
  worker.in_flight().clear();
  Hand({FromWorker::Kind::kLost, PeerOf(worker), {}, {}});
  if (probe_->Text() != text) Fail("messages of a dropped worker changed the state");
  Replace(rank);
}

// A launcher ends the old workers before it restarts the server, so their messages are lost.
void ModelWorld::Restart(size_t lost) {
  Say("the server and all workers have ended; the newest checkpoint" +
      std::string(lost > 0 ? " is damaged" : " is whole"));
  for (const auto& worker : workers_) {
    worker->End();
    worker->in_flight().clear();
  }
  const std::optional<ResumePoint> from = checkpoints_.GoOn(lost);
  Say(from ? fmt::format("a new one resumes from {}", from->checkpoint.name.Text())
           : "a new one starts from the beginning");
  Serve(from ? &*from : nullptr);
}

// Starts another process with the same rank.
void ModelWorld::Replace(std::optional<uint32_t> rank) {
  if (!rank || left_.replacements == 0) return;
  --left_.replacements;
  to_start_.push_back(*rank);
}

void ModelWorld::Pass(milliseconds time) {
  for (milliseconds passed{0}; passed < time; passed += kTick) {
    clock_.Advance(kTick);
    RunOnce();
  }
}

// All processes live, but no messages arrive for longer than the server waits.
void ModelWorld::Stall() {
  const auto patience = std::chrono::ceil<milliseconds>(probe_->Patience());
  Say("time passes: unfinished workers become slow");
  Pass(patience + 2 * kTick);
  Settle();
}

}  // namespace muster::testing
