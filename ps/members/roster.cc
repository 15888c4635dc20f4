#include "ps/members/roster.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "common/base/text.h"
#include "common/link/protocol.h"

namespace muster {

Roster::Roster(const VariableLayout& layout, JoinTerms terms)
    : terms_(std::move(terms)),
      check_(layout, terms_),
      members_(std::max(terms_.workers, terms_.seats)) {}

Roster::Seating Roster::Join(PeerId peer, const wire::Hello& hello, Time now) {
  if (std::string why = check_.CheckProtocol(hello); !why.empty()) return {hello.rank(), why};
  Seating seat = FindSeat(hello);
  if (!seat.refusal.empty()) return seat;
  const uint32_t rank = seat.rank;
  seat.refusal = check_.CheckWork(rank, hello);
  if (!seat.refusal.empty()) return seat;
  Member& member = members_[rank];
  const bool waits = !open_ && rank >= terms_.workers;
  member = {.state = waits ? MemberState::kWaiting : MemberState::kPreparing,
            .peer = peer,
            .incarnation = member.incarnation,
            .process = hello.process(),
            .host = HostOf(hello),
            .pid = hello.pid(),
            .threads = hello.threads(),
            .arithmetic = Printable(hello.arithmetic()),
            .weights_from = {},
            .unready_since = now,
            .last_heard = now};
  check_.Joined(rank, hello);
  return seat;
}

Roster::Seating Roster::FindSeat(const wire::Hello& hello) const {
  if (!hello.has_rank()) {
    for (uint32_t rank = 0; rank < size(); ++rank) {
      if (!members_[rank].present()) return {rank, ""};
    }
    return {0, fmt::format("all {} ranks of this job are taken", size())};
  }
  const uint32_t rank = hello.rank();
  if (rank >= size()) {
    return {rank,
            fmt::format("rank {} is out of range: this job has ranks 0 to {}", rank, size() - 1)};
  }
  const Member& member = members_[rank];
  if (!member.present()) return {rank, ""};
  return {rank, fmt::format("rank {} is taken by host {}, pid {}", rank, member.host, member.pid),
          true};
}

Roster::Seating Roster::Reseat(PeerId peer, const wire::Hello& hello, Time now) {
  if (!check_.HasToken(hello)) return {hello.rank(), kWrongToken};
  for (uint32_t rank = 0; rank < size(); ++rank) {
    Member& member = members_[rank];
    const bool same = hello.process() != 0 && member.process == hello.process();
    if (member.state != MemberState::kPreparing || !same) continue;
    member.peer = peer;
    member.last_heard = now;
    return {rank, ""};
  }
  return {hello.rank(), fmt::format("host {}, pid {} is not a worker waiting for shared memory",
                                    HostOf(hello), hello.pid())};
}

void Roster::BeginAnew(uint32_t rank, Time now) {
  Member& member = members_[rank];
  ++member.incarnation;
  member.state = MemberState::kPreparing;
  member.weights_from.reset();
  member.unready_since = now;
}

void Roster::Vacate(uint32_t rank, Time now) {
  const MemberState state = members_[rank].state;
  members_[rank].left = members_[rank].leaving && state >= MemberState::kReleased;
  BeginAnew(rank, now);
  members_[rank].state = MemberState::kAbsent;
  if (!open_ && std::ranges::none_of(members_, &Member::present)) check_.Forget();
}

std::optional<uint32_t> Roster::RankOf(PeerId peer) const {
  for (uint32_t rank = 0; rank < size(); ++rank) {
    if (members_[rank].present() && members_[rank].peer == peer) return rank;
  }
  return std::nullopt;
}

bool Roster::Matches(uint32_t rank, const wire::Address& address) const {
  return address.job() == terms_.job && address.rank() == rank &&
         address.incarnation() == members_[rank].incarnation;
}

std::vector<uint32_t> Roster::MissingRanks(MemberState least) const {
  std::vector<uint32_t> missing;
  for (uint32_t rank = 0; rank < terms_.workers; ++rank) {
    if (members_[rank].state < least) missing.push_back(rank);
  }
  return missing;
}

bool Roster::IsEnough() const {
  return std::ranges::count_if(members_, &Member::present) >= std::max(1U, terms_.least);
}

template <typename Is>
std::vector<uint32_t> Roster::Ranks(const Is& is) const {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < size(); ++rank) {
    if (members_[rank].state > MemberState::kWaiting && is(members_[rank])) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<uint32_t> Roster::Seated() const {
  return Ranks([](const Member&) { return true; });
}

std::vector<uint32_t> Roster::Unready() const {
  return Ranks([](const Member& member) { return member.state == MemberState::kPreparing; });
}

std::vector<uint32_t> Roster::Active() const {
  return Ranks([](const Member& member) { return member.weights_from.has_value(); });
}

std::vector<uint32_t> Roster::Staying() const {
  return Ranks(
      [](const Member& member) { return member.weights_from.has_value() && !member.leaving; });
}

std::vector<uint32_t> Roster::Helpers(int64_t version) const {
  const auto lacks = [&](uint32_t rank) { return !HasVersion(rank, version); };
  std::vector<uint32_t> helpers = Staying();
  std::erase_if(helpers, lacks);
  if (!helpers.empty()) return helpers;
  helpers = Active();
  std::erase_if(helpers, lacks);
  return helpers;
}

std::vector<uint32_t> Roster::ReadyToEnter() const {
  return Ranks([](const Member& member) {
    return member.state == MemberState::kReady && !member.weights_from && !member.leaving;
  });
}

bool Roster::HasVersion(uint32_t rank, int64_t version) const {
  const auto& from = members_[rank].weights_from;
  return from && *from <= version;
}

std::string Roster::Name(uint32_t rank) const {
  return WorkerName(rank, members_[rank].host, members_[rank].pid);
}

std::string Roster::Names(const std::vector<uint32_t>& ranks) const {
  std::vector<std::string> names;
  names.reserve(ranks.size());
  for (const uint32_t rank : ranks) names.push_back(Name(rank));
  return muster::Join(names, ", ");
}

std::string Roster::Remark(uint32_t rank) const {
  const auto first = check_.first();
  if (!first || members_[rank].threads == members_[*first].threads) return "";
  return fmt::format(
      "it uses {} threads but rank {} uses {}: this can change the bits of the result "
      "(worker.threads)",
      members_[rank].threads, *first, members_[*first].threads);
}

std::vector<std::string> Roster::Arithmetic() const {
  std::set<std::string> wordings;
  for (const Member& member : members_) {
    if (!member.arithmetic.empty()) wordings.insert(member.arithmetic);
  }
  return {wordings.begin(), wordings.end()};
}

}  // namespace muster
