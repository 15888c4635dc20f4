#include "tests/protocol/model_world.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "common/base/denormals.h"
#include "common/base/error.h"
#include "tests/job/test_job.h"

namespace muster::testing {

// Gives the server one message at a time. What the server sends arrives immediately.
class ModelWorld::Link : public ServerLink {
 public:
  explicit Link(ModelWorld& world) : world_(world) {}

  bool SharesMemory(PeerId) const override { return !world_.job_.bounds().remote; }
  std::string endpoint() const override { return "model://"; }
  int fd() const override { return -1; }
  bool Pending() override { return true; }  // prevents sleep
  std::optional<FromWorker> Receive() override {
    return world_.over_ ? world_.Farewell() : std::exchange(next, std::nullopt);
  }
  SendResult Send(PeerId peer, const wire::ServerMessage& message,
                  const OutgoingTensor& tensor) override {
    return world_.OnSent(peer, message, tensor.bytes);
  }

  std::optional<FromWorker> next;

 private:
  ModelWorld& world_;
};

ModelWorld::ModelWorld(const ModelJob& job, Tell tell)
    : job_(job), tell_(std::move(tell)), checkpoints_(job), left_(job.bounds()) {
  FlushDenormals();
  Serve(nullptr);
}

// Starts a server and its workers.
void ModelWorld::Serve(const ResumePoint* from) {
  probe_.reset();
  server_.reset();
  recorder_ =
      std::make_unique<Recorder>(job_.config(), job_.graph(), -1, from ? &from->state() : nullptr);
  auto link = std::make_unique<Link>(*this);
  link_ = link.get();
  server_ = std::make_unique<Server>(job_.config(), job_.graph(), TestToken(), std::move(link),
                                     *recorder_, -1, from);
  probe_ = std::make_unique<ServerProbe>(*server_);
  long_until_ = 0;
  to_start_.clear();
  for (uint32_t rank = 0; rank < job_.bounds().workers; ++rank) to_start_.push_back(rank);
}

ModelWorld::~ModelWorld() = default;

void ModelWorld::Fail(const std::string& what) {
  if (wrong_.empty()) wrong_ = what;
}

std::string ModelWorld::WhoIs(const ModelWorker& worker) const {
  if (!worker.welcomed()) return fmt::format("process {}", worker.number());
  return fmt::format("rank {} (process {})", worker.rank(), worker.number());
}

// ---------------------------------------------------------------------------------- actions

std::vector<Action> ModelWorld::Enabled() const {
  std::vector<Action> actions;
  if (!probe_->failure().empty() || !wrong_.empty()) return actions;
  using Kind = Action::Kind;
  for (size_t lost = 0; left_.restarts > 0 && lost <= ModelCheckpoints::kMostLost; ++lost) {
    if (lost <= checkpoints_.size())
      actions.push_back({Kind::kRestart, static_cast<uint8_t>(lost)});
  }
  if (probe_->done()) return actions;
  if (!to_start_.empty()) actions.push_back({Kind::kStart});
  for (const auto& worker : workers_) {
    if (worker->ended()) continue;
    const auto number = static_cast<uint8_t>(worker->number());
    const bool says = worker->CanSay();
    const auto in_flight = static_cast<int>(worker->in_flight().size());
    if (in_flight > 0 || says) actions.push_back({Kind::kSay, number});
    if (worker->HasUnread()) actions.push_back({Kind::kRead, number});
    const bool goes_ahead = worker->HasUnread() || job_.bounds().ahead;
    if (says && goes_ahead && in_flight < left_.in_flight) {
      actions.push_back({Kind::kAhead, number});
    }
    if (left_.crashes > 0) actions.push_back({Kind::kEnd, number});
    if (left_.silences > 0) actions.push_back({Kind::kSilence, number});
    if (left_.leaves > 0 && worker->welcomed() && !worker->leaving() && in_flight == 0) {
      actions.push_back({Kind::kLeave, number});
    }
  }
  if (probe_->HoldsBack()) actions.push_back({Kind::kWait});
  if (left_.stalls > 0) actions.push_back({Kind::kStall});
  if (left_.newcomers > 0) actions.push_back({Kind::kJoin});
  return actions;
}

bool ModelWorld::Do(const Action& action) {
  using Kind = Action::Kind;
  ModelWorker* const worker =
      action.worker < workers_.size() ? workers_[action.worker].get() : nullptr;
  switch (action.kind) {
    case Kind::kStart:
      Start(to_start_.front());
      to_start_.pop_front();
      break;
    case Kind::kJoin:
      --left_.newcomers;
      Start(std::nullopt);
      break;
    case Kind::kSay: {
      std::deque<Saying>& in_flight = worker->in_flight();
      if (in_flight.empty()) in_flight.push_back(worker->Say());
      const Saying saying = std::move(in_flight.front());
      in_flight.pop_front();
      Deliver(*worker, saying);
      break;
    }
    case Kind::kAhead:
      worker->in_flight().push_back(worker->Say());
      Say(WhoIs(*worker) + " " + worker->in_flight().back().words + ", undelivered");
      break;
    case Kind::kRead:
      Say(WhoIs(*worker) + " reads its messages");
      worker->Read();
      break;
    case Kind::kWait:
      Say("time passes: the pause of a suspected slice or block ends");
      Pass(PoisonWatch::kPause + 2 * kTick);
      Settle();
      break;
    case Kind::kEnd:
      --left_.crashes;
      End(*worker);
      break;
    case Kind::kSilence:
      --left_.silences;
      Silence(*worker);
      break;
    case Kind::kLeave:
      --left_.leaves;
      Deliver(*worker, worker->Leave());
      break;
    case Kind::kStall: {
      const std::string before = Text();
      Stall();
      if (Text() == before) return false;
      --left_.stalls;
      break;
    }
    case Kind::kRestart:
      --left_.restarts;
      Restart(action.worker);
  }
  if (job_.bounds().long_steps && probe_->step() >= long_until_ && probe_->has_begun()) {
    long_until_ = probe_->step() + 1;
    Pass(2 * kTick);
  }
  CheckSeats();
  return true;
}

void ModelWorld::Start(std::optional<uint32_t> rank) {
  const auto number = static_cast<uint32_t>(workers_.size());
  workers_.push_back(
      std::make_unique<ModelWorker>(job_, number, rank, [this](int64_t version, bool average) {
        return average ? probe_->EvaluatedAverage() : probe_->Weights(version);
      }));
  Deliver(*workers_.back(), workers_.back()->Hello());
}

void ModelWorld::Deliver(ModelWorker& worker, const Saying& saying) {
  Say(WhoIs(worker) + " " + saying.words);
  const PeerId peer = PeerOf(worker);
  if (!saying.message.has_hello() && !saying.message.has_goodbye()) {
    before_.push_back({peer, saying});
  }
  Hand({FromWorker::Kind::kMessage, peer, saying.message, saying.payload});
  if (!saying.message.has_goodbye()) return;
  worker.End();
  Hand({FromWorker::Kind::kLost, peer, {}, {}});
}

// ---------------------------------------------------------------------------------- the server

void ModelWorld::Hand(FromWorker event) {
  link_->next = std::move(event);
  RunOnce();
  Settle();
}

void ModelWorld::RunOnce() {
  probe_->RunOnce();
  if (job_.bounds().restarts > 0) checkpoints_.Keep(*probe_);
}

// Completes the work that the last message leaves for the start of the next round.
void ModelWorld::Settle() { RunOnce(); }

SendResult ModelWorld::OnSent(PeerId peer, const wire::ServerMessage& message,
                              std::span<const std::byte> tensor) {
  ModelWorker& worker = *workers_.at(peer - 1);
  if (worker.ended()) return SendResult::kGone;
  if (tell_ && !message.has_weights_chunk()) {
    const std::string words = WordsOf(message);
    if (!words.empty()) Say("    " + WhoIs(worker) + " ◀─ " + words);
  }
  if (message.has_weights_chunk() && message.weights_chunk().version() > job_.plan().total_steps) {
    Fail(fmt::format("W({}) is sent, which does not exist", message.weights_chunk().version()));
  } else if (message.has_weights_chunk()) {
    const wire::WeightsChunk& weights = message.weights_chunk();
    const Chunk& chunk = job_.chunks()[weights.chunk()];
    const auto all =
        weights.average() ? job_.Average(weights.version()) : job_.Weights(weights.version());
    const auto must = all.subspan(chunk.begin, chunk.floats());
    if (tensor.size() != must.size_bytes() ||
        std::memcmp(tensor.data(), must.data(), tensor.size()) != 0) {
      Fail(fmt::format("chunk {} of {}W({}) is sent with other bits than in the undisturbed run{}",
                       weights.chunk(), weights.average() ? "the average of " : "",
                       weights.version(), probe_ ? "; " + probe_->Wrong(job_) : ""));
    }
  }
  worker.Receive(message);
  if (!worker.trouble().empty()) Fail(WhoIs(worker) + " " + worker.trouble());
  return SendResult::kQueued;
}

// A worker loses its rank only because of its own fault.
void ModelWorld::CheckSeats() {
  for (const auto& worker : workers_) {
    if (!worker->trouble().empty()) Fail(WhoIs(*worker) + " " + worker->trouble());
    if (worker->ended() || probe_->roster().RankOf(PeerOf(*worker))) continue;
    if (worker->leaving()) {  // before the start it may leave immediately
      worker->End();
      Replace(worker->rank());
      continue;
    }
    Fail(WhoIs(*worker) + " has lost its rank without a fault");
  }
}

// At the end of the run the workers leave one after another.
std::optional<FromWorker> ModelWorld::Farewell() {
  for (const auto& worker : workers_) {
    if (worker->HasUnread()) worker->Read();
    if (!worker->CanSay()) continue;
    const Saying saying = worker->Say();
    if (saying.message.has_goodbye()) worker->End();
    return FromWorker{FromWorker::Kind::kMessage, PeerOf(*worker), saying.message, saying.payload};
  }
  clock_.Advance(kTick);
  return std::nullopt;
}

}  // namespace muster::testing
