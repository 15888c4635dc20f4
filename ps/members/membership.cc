#include "ps/members/membership.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "common/base/process.h"
#include "common/base/text.h"
#include "common/link/protocol.h"
#include "common/link/wire_values.h"

namespace muster {

Membership::Membership(const VariableLayout& layout, JoinTerms terms, Recorder& recorder)
    : recorder_(recorder), may_join_late_(terms.seats > 0), roster_(layout, std::move(terms)) {}

Membership::Arrival Membership::OnHello(PeerId peer, PeerId connection, const wire::Hello& hello,
                                        bool shares_memory, Time now) {
  const bool comes_back = hello.instead_of_local() && phase_ != Phase::kGathering;
  Roster::Seating seating;
  if (had_rank_.contains(peer)) {
    // A link shares memory with a connection only once. If its worker got another rank, it would
    // write over gradients that have arrived.
    const auto seated = roster_.RankOf(peer);
    seating = {hello.rank(), seated ? fmt::format("its connection already has rank {}", *seated)
                                    : "its connection has lost its rank; connect again"};
  } else if (comes_back) {
    seating = roster_.Reseat(peer, hello, now);
  } else if (phase_ == Phase::kClosed || (phase_ != Phase::kGathering && !may_join_late_)) {
    seating = {hello.rank(), "all workers of this job have already joined"};
  } else {
    seating = roster_.Join(peer, hello, now);
  }
  const uint32_t rank = seating.rank;
  if (!seating.refusal.empty()) {
    const std::string who = hello.has_rank() ? fmt::format("rank {}", rank) : "a worker";
    // A worker whose rank is taken retries every second; report it only once.
    if (!seating.is_taken || ask_again_.insert(peer).second) {
      Refuse(fmt::format("{} (host {}, pid {})", who, HostOf(hello), hello.pid()), seating.refusal);
    }
    auto refusal = std::make_shared<wire::ServerMessage>();
    refusal->mutable_refused()->set_reason(seating.refusal);
    if (seating.is_taken) refusal->mutable_refused()->set_rank_is_taken(true);
    outgoing_.push_back({.peer = peer, .rank = {}, .message = std::move(refusal), .tensor = {}});
    return {Outcome::kRefused, rank};
  }
  ask_again_.erase(peer);
  had_rank_.insert(peer);
  roster_.at(rank).connection = connection;
  roster_.at(rank).shares_memory = shares_memory;
  if (comes_back) {
    LogWarning(
        "{} gets its messages over ZeroMQ because shared memory failed (see the worker's log or "
        "the line above)",
        roster_.Name(rank));
    return {Outcome::kCameBack, rank};
  }
  const std::string remark = roster_.Remark(rank);
  events::Event joined;
  joined.mutable_joined()->set_rank(rank);
  joined.mutable_joined()->set_message(
      fmt::format("{} joined{}{}", roster_.Name(rank), remark.empty() ? "" : "; ", remark));
  recorder_.Record(joined);
  if (roster_.at(rank).state == MemberState::kWaiting) return {Outcome::kWaits, rank};
  return {phase_ == Phase::kGathering ? Outcome::kJoined : Outcome::kJoinedLate, rank};
}

void Membership::OnClosed(PeerId peer) {
  had_rank_.erase(peer);
  ask_again_.erase(peer);
}

void Membership::Refuse(const std::string& who, const std::string& why) {
  if (!refused_.Count()) return;
  const std::string line = Printable(fmt::format("{}: {}", who, why));
  LogWarning("refused {} ({} so far)", line, refused_.count());
  events::Event refused;
  refused.mutable_refused()->set_message("Refused " + line);
  recorder_.Record(refused);
}

void Membership::WelcomeAll(WelcomeTerms terms) {
  terms_ = std::move(terms);
  phase_ = Phase::kPreparing;
  for (const uint32_t rank : roster_.Seated()) Welcome(rank);
}

void Membership::Welcome(uint32_t rank) {
  wire::ServerMessage message;
  wire::Welcome& welcome = *message.mutable_welcome();
  welcome.set_workers(roster_.workers());
  for (const Chunk& chunk : terms_.chunks) welcome.add_chunk_end(chunk.end);
  welcome.set_train_samples(terms_.plan.train_samples);
  welcome.set_global_batch(terms_.plan.global_batch);
  welcome.set_total_steps(terms_.plan.total_steps);
  welcome.set_slices(static_cast<uint32_t>(terms_.plan.slices));
  if (terms_.plan.drop_last) welcome.set_drop_last(true);
  // A worker that joins late gets its actual work later, in orders.
  for (const TreeNode& node : terms_.assignment.nodes[rank % roster_.workers()]) {
    *welcome.add_subtree() = SubtreeOf(node);
  }
  welcome.set_first_step(terms_.assignment.from_step);
  welcome.set_buffers(Buffers());
  welcome.set_tensor_type(terms_.wire_type);
  Send(rank, std::move(message));
}

// One buffer per slice and one more, so that even a single remaining member can do all the work.
// Unused buffers take no memory.
uint32_t Membership::Buffers() const { return static_cast<uint32_t>(terms_.plan.slices) + 1; }

void Membership::OnReady(uint32_t rank) {
  Member& member = roster_.at(rank);
  member.was_ready = true;
  if (member.state == MemberState::kPreparing) member.state = MemberState::kReady;
}

bool Membership::Start() {
  if (phase_ != Phase::kPreparing || roster_.Seated().empty() || !roster_.Unready().empty()) {
    return false;
  }
  phase_ = Phase::kRunning;
  roster_.Open();
  return true;
}

std::vector<uint32_t> Membership::AdmitWaiting(Time now) {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < size(); ++rank) {
    Member& member = roster_.at(rank);
    if (member.state != MemberState::kWaiting) continue;
    member.state = MemberState::kPreparing;
    member.unready_since = now;
    ranks.push_back(rank);
  }
  return ranks;
}

void Membership::Activate(uint32_t rank, int64_t version) {
  roster_.at(rank).weights_from = version;
  wire::ServerMessage message;
  message.mutable_activate()->set_version(version);
  Send(rank, std::move(message));
}

// The message is addressed to the old incarnation, which the worker still has.
void Membership::Reset(uint32_t rank, Time now) {
  wire::ServerMessage message;
  message.mutable_reset()->set_incarnation(roster_.at(rank).incarnation + 1);
  Send(rank, std::move(message));
  roster_.BeginAnew(rank, now);
}

// Later messages from the worker are ignored. It gets Stop in case it is still running.
void Membership::Vacate(uint32_t rank, const std::string& why, Time now) {
  wire::ServerMessage message;
  message.mutable_stop()->set_completed(false);
  message.mutable_stop()->set_reason(why);
  Send(rank, std::move(message));
  roster_.Vacate(rank, now);
}

void Membership::Release(uint32_t rank) {
  roster_.at(rank).state = MemberState::kReleased;
  roster_.at(rank).weights_from.reset();  // gets no work even if it is the only worker left
  wire::ServerMessage message;
  message.mutable_stop()->set_completed(true);
  message.mutable_stop()->set_reason("it asked to leave");
  Send(rank, std::move(message));
}

std::optional<uint32_t> Membership::SenderOf(const FromWorker& event, Time now, std::string& why) {
  const std::optional<uint32_t> rank = roster_.RankOf(event.peer);
  if (event.kind == FromWorker::Kind::kMalformed) {
    why = "it is malformed";
  } else if (!rank) {
    why = "its sender has not joined";
  } else {
    // A sign of life, even if the worker does not know yet that it was reset.
    roster_.at(*rank).last_heard = now;
    if (roster_.Matches(*rank, event.message.address())) return rank;
    // Named values outlive a Reset, of which the program knows nothing.
    if (event.message.has_ask() || event.message.has_tell()) {
      wire::Address address = event.message.address();
      address.set_incarnation(roster_.at(*rank).incarnation);
      if (roster_.Matches(*rank, address)) return rank;
    }
    // A worker that has not been welcomed does not know its address yet.
    if (!event.message.has_heartbeat()) why = "wrong job, rank or incarnation";
  }
  return std::nullopt;
}

std::vector<uint32_t> Membership::Silent(Time now, double silence_s) const {
  std::vector<uint32_t> silent;
  for (uint32_t rank = 0; rank < size(); ++rank) {
    const Member& member = roster_.at(rank);
    const std::chrono::duration<double> quiet = now - member.last_heard;
    if (member.present() && quiet.count() > silence_s) silent.push_back(rank);
  }
  return silent;
}

void Membership::Extend(std::chrono::steady_clock::duration suspension) {
  for (uint32_t rank = 0; rank < size(); ++rank) {
    Member& member = roster_.at(rank);
    member.last_heard = WithoutSuspension(member.last_heard, suspension);
  }
  ExtendUnready(suspension);
}

void Membership::ExtendUnready(std::chrono::steady_clock::duration suspension) {
  for (uint32_t rank = 0; rank < size(); ++rank) {
    Member& member = roster_.at(rank);
    member.unready_since = WithoutSuspension(member.unready_since, suspension);
  }
}

const wire::ServerMessage& ToWorker::Addressed() const {
  if (rank) {
    message->mutable_address()->set_rank(*rank);
    message->mutable_address()->set_incarnation(incarnation);
  }
  return *message;
}

void Membership::Post(uint32_t rank, const std::shared_ptr<wire::ServerMessage>& message,
                      std::span<const std::byte> tensor) {
  const Member& member = roster_.at(rank);
  outgoing_.push_back({.peer = member.peer,
                       .rank = rank,
                       .incarnation = member.incarnation,
                       .message = message,
                       .tensor = tensor});
}

void Membership::Send(uint32_t rank, wire::ServerMessage message,
                      std::span<const std::byte> tensor) {
  if (!roster_.at(rank).present()) return;
  message.mutable_address()->set_job(roster_.job());
  Post(rank, std::make_shared<wire::ServerMessage>(std::move(message)), tensor);
}

void Membership::Broadcast(wire::ServerMessage message, std::span<const std::byte> tensor) {
  message.mutable_address()->set_job(roster_.job());
  const auto shared = std::make_shared<wire::ServerMessage>(std::move(message));
  for (uint32_t rank = 0; rank < size(); ++rank) {
    const Member& member = roster_.at(rank);
    if (member.weights_from && member.present()) Post(rank, shared, tensor);
  }
}

void Membership::SendHeartbeats() {
  wire::ServerMessage message;
  message.mutable_heartbeat();
  for (uint32_t rank = 0; rank < size(); ++rank) Send(rank, message);
}

void Membership::StopAll(bool completed, const std::string& reason, int64_t step) {
  phase_ = Phase::kClosed;
  stop_.mutable_address()->set_job(roster_.job());
  stop_.mutable_stop()->set_completed(completed);
  stop_.mutable_stop()->set_reason(reason);
  if (completed) stop_.mutable_stop()->set_step(step);
  for (uint32_t rank = 0; rank < size(); ++rank) Send(rank, stop_);
  for (const PeerId peer : ask_again_) {
    outgoing_.push_back({.peer = peer,
                         .rank = {},
                         .message = std::make_shared<wire::ServerMessage>(stop_),
                         .tensor = {}});
  }
}

void Membership::TurnAway(PeerId peer, const wire::Hello& hello) {
  auto answer = std::make_shared<wire::ServerMessage>();
  if (roster_.check().HasToken(hello)) {
    *answer = stop_;
  } else {
    answer->mutable_refused()->set_reason(kWrongToken);
  }
  outgoing_.push_back({.peer = peer, .rank = {}, .message = std::move(answer), .tensor = {}});
}

bool Membership::AllFinished() const {
  for (uint32_t rank = 0; rank < size(); ++rank) {
    const Member& member = roster_.at(rank);
    if (member.present() && member.state != MemberState::kFinished) return false;
  }
  return true;
}

}  // namespace muster
