#include "ps/membership.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <utility>

#include "common/base/process.h"
#include "common/base/text.h"
#include "common/link/protocol.h"
#include "common/link/wire_values.h"

namespace muster {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kGoodbyeWait{3000};
// Of those that come too late, between two looks at what is being written.
constexpr int kMessagesAtATime = 64;

}  // namespace

Membership::Membership(const VariableLayout& layout, JoinTerms terms, ServerLink& link,
                       Reporter& reporter, OnLost on_lost)
    : link_(link),
      reporter_(reporter),
      on_lost_(std::move(on_lost)),
      may_join_late_(terms.seats > 0),
      roster_(layout, std::move(terms)) {}

Membership::Arrival Membership::OnHello(PeerId peer, const wire::WorkerMessage& message) {
  const wire::Hello& hello = message.hello();
  const bool comes_back = hello.instead_of_local() && phase_ != Phase::kGathering;
  Roster::Seating seating;
  if (const auto seated = roster_.RankOf(peer)) {
    // A link may share memory with a connection once.
    seating = {*seated, fmt::format("its connection has the seat of rank {} already", *seated)};
  } else if (comes_back) {
    seating = roster_.Reseat(peer, hello);
  } else if (phase_ == Phase::kClosed || (phase_ != Phase::kGathering && !may_join_late_)) {
    seating = {hello.rank(), "all workers of this job have joined already"};
  } else {
    seating = roster_.Join(peer, hello);
  }
  const uint32_t rank = seating.rank;
  if (!seating.refusal.empty()) {
    const std::string who = hello.has_rank() ? fmt::format("rank {}", rank) : "a worker";
    Refuse(fmt::format("{} (host {}, pid {})", who, hello.host(), hello.pid()), seating.refusal);
    wire::ServerMessage refusal;
    refusal.mutable_refused()->set_reason(seating.refusal);
    (void)link_.Send(peer, refusal, {});
    return {Outcome::kRefused, rank};
  }
  if (comes_back) {
    LogWarning(
        "{} gets its messages over ZeroMQ: no memory could be shared with it (its log, or a line "
        "above, says why)",
        Name(rank));
    return {Outcome::kCameBack, rank};
  }
  const std::string remark = roster_.Remark(rank);
  const std::string joined =
      fmt::format("{} joined{}{}", Name(rank), remark.empty() ? "" : "; ", remark);
  LogInfo("{}", joined);
  reporter_.Joined(rank, joined);
  if (roster_.at(rank).waits) return {Outcome::kWaits, rank};
  return {phase_ == Phase::kGathering ? Outcome::kJoined : Outcome::kJoinedLate, rank};
}

void Membership::Refuse(const std::string& who, const std::string& why) {
  if (!refused_.Count()) return;
  const std::string line = Printable(fmt::format("{}: {}", who, why));
  LogWarning("refused {} ({} so far)", line, refused_.count());
  reporter_.Refused("Refused " + line);
}

void Membership::WelcomeAll(WelcomeTerms terms) {
  terms_ = std::move(terms);
  phase_ = Phase::kPreparing;
  for (const uint32_t rank : Seated()) Welcome(rank);
}

void Membership::Welcome(uint32_t rank) {
  wire::ServerMessage message = NewMessage();
  wire::Welcome& welcome = *message.mutable_welcome();
  welcome.set_workers(roster_.workers());
  for (const Chunk& chunk : terms_.chunks) welcome.add_chunk_end(chunk.end);
  welcome.set_train_samples(terms_.plan.train_samples);
  welcome.set_global_batch(terms_.plan.global_batch);
  welcome.set_total_steps(terms_.plan.total_steps);
  welcome.set_slices(static_cast<uint32_t>(terms_.plan.slices));
  // One that comes late computes something else, most likely: an Assignment follows.
  wire::Assignment& share = *welcome.mutable_assignment();
  share.set_id(terms_.assignment.id);
  share.set_from_step(terms_.assignment.from_step);
  for (const TreeNode& node : FirstNodes(rank)) *share.add_subtree() = SubtreeOf(node);
  welcome.set_arenas(ArenasOf(rank));
  welcome.set_tensor_type(terms_.wire_type);
  if (const auto peer = roster_.at(rank).peer)
    link_.ShareGradients(*peer, GradientLayoutOf(welcome));
  Send(rank, message);
}

const std::vector<TreeNode>& Membership::FirstNodes(uint32_t rank) const {
  return terms_.assignment.nodes[rank % roster_.workers()];
}

// One for each slice: even the last member that is left has room for what all others were to do.
// Those that nobody uses take no memory.
uint32_t Membership::ArenasOf(uint32_t) const {
  return static_cast<uint32_t>(terms_.plan.slices) + 1;
}

void Membership::Enter(uint32_t rank, int64_t version) {
  roster_.at(rank).entered = true;
  roster_.at(rank).entered_at = version;
  wire::ServerMessage message = NewMessage();
  message.mutable_enter()->set_version(version);
  Send(rank, message);
}

// Told in the name of the old incarnation: that is who still listens.
void Membership::Fence(uint32_t rank) {
  wire::ServerMessage message = NewMessage();
  message.mutable_fence()->set_incarnation(roster_.at(rank).incarnation + 1);
  Send(rank, message);
  roster_.BeginAnew(rank);
}

// Nobody listens to what it says from now on; it is told to end, in case it still runs.
void Membership::Vacate(uint32_t rank, const std::string& why) {
  wire::ServerMessage message = NewMessage();
  message.mutable_stop()->set_completed(false);
  message.mutable_stop()->set_reason(why);
  const Member& member = roster_.at(rank);
  message.mutable_address()->set_rank(rank);
  message.mutable_address()->set_incarnation(member.incarnation);
  if (member.peer) (void)link_.Send(*member.peer, message, {});
  roster_.Vacate(rank);
}

void Membership::Release(uint32_t rank) {
  roster_.at(rank).released = true;
  wire::ServerMessage message = NewMessage();
  message.mutable_stop()->set_completed(true);
  message.mutable_stop()->set_reason("it wanted to leave");
  Send(rank, message);
}

template <typename Is>
std::vector<uint32_t> Membership::Ranks(const Is& is) const {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < size(); ++rank) {
    const Member& member = roster_.at(rank);
    if (member.peer && !member.waits && is(member)) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<uint32_t> Membership::Entered() const {
  return Ranks([](const Member& member) { return member.entered; });
}

std::vector<uint32_t> Membership::Staying() const {
  return Ranks([](const Member& member) { return member.entered && !member.leaving; });
}

std::vector<uint32_t> Membership::ReadyToEnter() const {
  return Ranks([](const Member& m) { return m.ready && !m.entered && !m.leaving; });
}

std::vector<uint32_t> Membership::Seated() const {
  return Ranks([](const Member&) { return true; });
}

std::vector<uint32_t> Membership::UnreadyRanks() const {
  return Ranks([](const Member& member) { return !member.ready; });
}

bool Membership::Start() {
  if (phase_ != Phase::kPreparing || Seated().empty() || !UnreadyRanks().empty()) return false;
  phase_ = Phase::kRunning;
  roster_.Open();
  return true;
}

std::vector<uint32_t> Membership::Admit() {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < size(); ++rank) {
    Member& member = roster_.at(rank);
    if (!std::exchange(member.waits, false) || !member.peer) continue;
    member.unready_since = Clock::now();
    ranks.push_back(rank);
  }
  return ranks;
}

std::optional<uint32_t> Membership::SenderOf(const FromWorker& event, std::string& why) {
  const std::optional<uint32_t> rank = roster_.RankOf(event.peer);
  if (event.kind == FromWorker::Kind::kMalformed) {
    why = "not a message of this protocol";
  } else if (!rank) {
    why = "has not joined";
  } else {
    // Also of one that has not read yet that it was fenced.
    roster_.at(*rank).last_heard = Clock::now();
    if (roster_.Matches(*rank, event.message.address())) return rank;
    // Who has not been welcomed does not know yet who it is.
    if (!event.message.has_beat()) why = "wrong job, rank or incarnation";
  }
  return std::nullopt;
}

void Membership::OnClosed(PeerId peer) {
  const std::optional<uint32_t> rank = roster_.RankOf(peer);
  if (!rank || roster_.at(*rank).finished) return;
  on_lost_(*rank, ExitCode::kPeerFailed, "its connection ended");
}

void Membership::CheckSilence(Clock::time_point now, double silence_s) {
  for (uint32_t rank = 0; rank < size(); ++rank) {
    const Member& member = roster_.at(rank);
    if (!member.peer || now - member.last_heard <= std::chrono::duration<double>(silence_s))
      continue;
    on_lost_(rank, ExitCode::kDeadline, fmt::format("silent for {:g} s", silence_s));
  }
}

wire::ServerMessage Membership::NewMessage() const {
  wire::ServerMessage message;
  message.mutable_address()->set_job(roster_.job());
  return message;
}

void Membership::Send(uint32_t rank, wire::ServerMessage& message,
                      std::span<const std::byte> tensor) {
  const Member& member = roster_.at(rank);
  message.mutable_address()->set_rank(rank);
  message.mutable_address()->set_incarnation(member.incarnation);
  if (!member.peer) return;
  // Of a worker that has gone the link tells after its last messages, which may say why.
  const Urgency urgency = UrgencyOf(message.weights_chunk());
  if (link_.Send(*member.peer, message, {tensor, urgency}) != SendResult::kFull) return;
  on_lost_(rank, ExitCode::kPeerFailed, "it does not take its messages");
}

void Membership::Broadcast(wire::ServerMessage& message, std::span<const std::byte> tensor) {
  for (uint32_t rank = 0; rank < size(); ++rank) {
    if (roster_.at(rank).entered) Send(rank, message, tensor);
  }
}

void Membership::SendHeartbeats() {
  wire::ServerMessage message = NewMessage();
  message.mutable_beat();
  for (uint32_t rank = 0; rank < size(); ++rank) Send(rank, message);
}

void Membership::Forgive(Clock::duration suspension) {
  for (uint32_t rank = 0; rank < size(); ++rank) {
    Member& member = roster_.at(rank);
    member.last_heard = WithoutSuspension(member.last_heard, suspension);
    member.unready_since = WithoutSuspension(member.unready_since, suspension);
  }
}

std::string Membership::Names(const std::vector<uint32_t>& ranks) const {
  std::vector<std::string> names;
  names.reserve(ranks.size());
  for (const uint32_t rank : ranks) names.push_back(Name(rank));
  return Join(names, ", ");
}

bool Membership::EverybodyLeft() const {
  for (uint32_t rank = 0; rank < size(); ++rank) {
    if (roster_.at(rank).peer && !roster_.at(rank).finished) return false;
  }
  return true;
}

void Membership::StopAll(bool completed, const std::string& reason) {
  phase_ = Phase::kClosed;
  stop_ = NewMessage();
  stop_.mutable_stop()->set_completed(completed);
  stop_.mutable_stop()->set_reason(reason);
  wire::ServerMessage message = stop_;
  for (uint32_t rank = 0; rank < size(); ++rank) {
    Member& member = roster_.at(rank);
    if (!member.peer) continue;
    message.mutable_address()->set_rank(rank);
    message.mutable_address()->set_incarnation(member.incarnation);
    if (link_.Send(*member.peer, message, {}) != SendResult::kQueued) member.finished = true;
  }
  link_.Deliver();
  const Clock::time_point deadline = Clock::now() + (completed ? kGoodbyeWait : kGoodbyeWait / 3);
  while (!EverybodyLeft() && Clock::now() < deadline) {
    const std::optional<FromWorker> event = link_.Receive();
    if (!event) {
      pollfd fd{link_.fd(), POLLIN, 0};
      if (link_.PrepareToSleep()) (void)::poll(&fd, 1, 20);
      continue;
    }
    const std::optional<uint32_t> rank = roster_.RankOf(event->peer);
    if (rank && (event->kind == FromWorker::Kind::kLost || event->message.has_goodbye())) {
      roster_.at(*rank).finished = true;
    }
    TurnAway(*event);
  }
}

void Membership::TurnAway(const FromWorker& event) {
  if (!event.message.has_hello()) return;
  wire::ServerMessage refusal;
  refusal.mutable_refused()->set_reason(kWrongToken);
  const bool is_ours = roster_.HasToken(event.message.hello());
  (void)link_.Send(event.peer, is_ours ? stop_ : refusal, {});
  link_.Deliver();
}

void Membership::TurnAway() {
  for (int i = 0; i < kMessagesAtATime; ++i) {
    const std::optional<FromWorker> event = link_.Receive();
    if (!event) break;
    TurnAway(*event);
  }
}

}  // namespace muster
