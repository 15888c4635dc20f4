// Faults of a model, and the reactions of a launcher.
#include <fmt/core.h>

#include "tests/protocol/model_world.h"

namespace muster::testing {

using std::chrono::milliseconds;

// Its last messages are lost with it.
void ModelWorld::End(ModelWorker& worker) {
  Say(WhoIs(worker) + " has ended, and the server learns of it");
  const std::optional<uint32_t> rank = probe_->roster().RankOf(PeerOf(worker));
  worker.End();
  worker.in_flight().clear();
  Hand({FromWorker::Kind::kLost, PeerOf(worker), {}, {}});
  Replace(rank);
}

// The server drops a worker that is silent or disconnected, while the worker continues.
void ModelWorld::Silence(ModelWorker& worker) {
  Say(WhoIs(worker) + " is cut off, and the server gives it up");
  const std::optional<uint32_t> rank = probe_->roster().RankOf(PeerOf(worker));
  Hand({FromWorker::Kind::kLost, PeerOf(worker), {}, {}});
  const std::string text = probe_->Text();
  for (int i = 0; i < 3 && worker.CanSay(); ++i) {
    const Saying late = worker.Say();
    Say("… " + late.words + ", which comes too late");
    Hand({FromWorker::Kind::kMessage, PeerOf(worker), late.message, late.payload});
  }
  worker.End();
  worker.in_flight().clear();
  Hand({FromWorker::Kind::kLost, PeerOf(worker), {}, {}});
  if (probe_->Text() != text) Fail("what a worker said that had been given up changed something");
  Replace(rank);
}

// A launcher ends the old workers before it restarts the server, so their messages are lost.
void ModelWorld::Restart(size_t lost) {
  Say("the server has ended, and with it all workers; the newest checkpoint" +
      std::string(lost > 0 ? " is damaged" : " is whole"));
  for (const auto& worker : workers_) {
    worker->End();
    worker->in_flight().clear();
  }
  const std::optional<ResumePoint> from = checkpoints_.GoOn(lost);
  Say(from ? fmt::format("another goes on from {}", from->checkpoint.name.Text())
           : "another begins anew");
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
  Say("time passes: who has not done its part is late");
  Pass(patience + 2 * kTick);
  Settle();
}

}  // namespace muster::testing
