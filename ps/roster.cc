#include "ps/roster.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "common/base/text.h"
#include "common/config/compute_settings.h"
#include "common/link/protocol.h"
#include "common/plan/step_plan.h"

namespace muster {
namespace {

std::string SamplesText(int64_t train, int64_t validation, int64_t test) {
  if (validation == 0) return fmt::format("{} training and {} test samples", train, test);
  return fmt::format("{} training, {} validation and {} test samples", train, validation, test);
}

}  // namespace

Roster::Roster(const VariableLayout& layout, JoinTerms terms)
    : layout_(layout), terms_(std::move(terms)), members_(std::max(terms_.workers, terms_.seats)) {}

bool Roster::HasToken(const wire::Hello& hello) const {
  return SameToken(hello.token(), terms_.token);
}

Roster::Seating Roster::Join(PeerId peer, const wire::Hello& hello) {
  if (!HasToken(hello)) return {hello.rank(), kWrongToken};
  if (hello.protocol_version() != kProtocolVersion) {
    return {hello.rank(),
            fmt::format("protocol version {}: expected {}; use the same release of Muster for "
                        "server and workers",
                        hello.protocol_version(), kProtocolVersion)};
  }
  Seating seat = FindSeat(hello);
  if (!seat.refusal.empty()) return seat;
  const uint32_t rank = seat.rank;
  if (auto reason = CheckGraph(hello)) return {rank, *reason};
  if (auto reason = CheckSettings(hello)) return {rank, *reason};
  if (auto reason = CheckData(rank, hello)) return {rank, *reason};
  Member& member = members_[rank];
  member.peer = peer;
  member.process = hello.process();
  member.host = Printable(hello.host());
  member.pid = hello.pid();
  member.threads = hello.threads();
  member.arithmetic = Printable(hello.arithmetic());
  member.finished = member.leaving = member.released = false;
  member.was_ready = false;
  member.waits = !open_ && rank >= terms_.workers;
  member.last_heard = member.unready_since = std::chrono::steady_clock::now();
  if (!first_) {
    first_ = rank;
    train_samples_ = hello.train_samples();
    test_samples_ = hello.test_samples();
    validation_samples_ = hello.validation_samples();
    data_fingerprint_ = hello.data_fingerprint();
  }
  return seat;
}

Roster::Seating Roster::FindSeat(const wire::Hello& hello) const {
  if (!hello.has_rank()) {
    for (uint32_t rank = 0; rank < size(); ++rank) {
      if (!members_[rank].peer) return {rank, ""};
    }
    return {0, fmt::format("all {} ranks of this job are taken", size())};
  }
  const uint32_t rank = hello.rank();
  if (rank >= size()) {
    return {rank, fmt::format("rank {}: this job has the ranks 0 to {}", rank, size() - 1)};
  }
  if (members_[rank].peer) {
    return {rank, fmt::format("rank {} is taken by host {}, pid {}", rank, members_[rank].host,
                              members_[rank].pid)};
  }
  return {rank, ""};
}

Roster::Seating Roster::Reseat(PeerId peer, const wire::Hello& hello) {
  if (!HasToken(hello)) return {hello.rank(), kWrongToken};
  for (uint32_t rank = 0; rank < size(); ++rank) {
    Member& member = members_[rank];
    const bool same = hello.process() != 0 && member.process == hello.process();
    if (!member.peer || member.ready || !same) continue;
    member.peer = peer;
    member.last_heard = std::chrono::steady_clock::now();
    return {rank, ""};
  }
  return {hello.rank(), fmt::format("host {}, pid {} is no worker that waits for its memory",
                                    Printable(hello.host()), hello.pid())};
}

void Roster::BeginAnew(uint32_t rank) {
  ++members_[rank].incarnation;
  members_[rank].ready = false;
  members_[rank].entered = false;
  members_[rank].unready_since = std::chrono::steady_clock::now();
}

void Roster::Vacate(uint32_t rank) {
  BeginAnew(rank);
  members_[rank].peer.reset();
}

std::vector<std::string> Roster::Arithmetic() const {
  std::set<std::string> wordings;
  for (const Member& member : members_) {
    if (!member.arithmetic.empty()) wordings.insert(member.arithmetic);
  }
  return {wordings.begin(), wordings.end()};
}

std::optional<std::string> Roster::CheckGraph(const wire::Hello& hello) const {
  if (hello.graph_hash() == layout_.hash()) return std::nullopt;
  if (hello.variable_size() == 0) {
    return "the graph differs; it is too large for the worker to say in what";
  }
  const std::vector<Variable>& ours = layout_.variables();
  const int common = std::min(hello.variable_size(), static_cast<int>(ours.size()));
  for (int i = 0; i < common; ++i) {
    const wire::VariableShape& theirs = hello.variable(i);
    const std::string shape = "[" + muster::Join(theirs.shape(), ",") + "]";
    if (theirs.name() != ours[i].name || shape != ours[i].ShapeString()) {
      return fmt::format("the graph differs: variable {} is {} {} here and {} {} in the worker", i,
                         ours[i].name, ours[i].ShapeString(), theirs.name(), shape);
    }
  }
  if (hello.variable_size() != static_cast<int>(ours.size())) {
    const bool more_here = hello.variable_size() < static_cast<int>(ours.size());
    return fmt::format("the graph differs: variable {} is only in the {}",
                       more_here ? ours[common].name : hello.variable(common).name(),
                       more_here ? "server" : "worker");
  }
  if (hello.layer_size() == 0) {
    return "the graph differs in a layer's settings or inputs; it has too many layers for "
           "the worker to say in which";
  }
  const std::vector<std::string> lines = layout_.description();
  for (int i = 0; i < std::min(hello.layer_size(), static_cast<int>(lines.size())); ++i) {
    if (hello.layer(i) != lines[i]) {
      return fmt::format("the graph differs: \"{}\" here and \"{}\" in the worker", lines[i],
                         hello.layer(i));
    }
  }
  return fmt::format("the graph differs: {} layers here and {} in the worker", lines.size(),
                     hello.layer_size());
}

std::optional<std::string> Roster::CheckSettings(const wire::Hello& hello) const {
  if (hello.setting_size() == 0) return std::nullopt;  // a program that has no config
  const auto difference =
      FirstDifference(terms_.settings, {hello.setting().begin(), hello.setting().end()});
  if (!difference) return std::nullopt;
  return fmt::format(
      "the config differs: {}: start server and workers with the same config and settings",
      *difference);
}

std::optional<std::string> Roster::CheckData(uint32_t rank, const wire::Hello& hello) const {
  if (hello.train_samples() <= 0) return "the worker sees no training samples";
  constexpr int64_t kMostSamples = StepPlan::kMostSamples;
  const auto counts = [](const int64_t samples) { return 0 <= samples && samples <= kMostSamples; };
  const std::string theirs =
      SamplesText(hello.train_samples(), hello.validation_samples(), hello.test_samples());
  if (!counts(hello.train_samples()) || !counts(hello.test_samples()) ||
      !counts(hello.validation_samples())) {
    return fmt::format("rank {} sees {}: expected at most {} of each", rank, theirs, kMostSamples);
  }
  if (!first_) return std::nullopt;
  const std::string ours = SamplesText(train_samples_, validation_samples_, test_samples_);
  if (theirs != ours) {
    return fmt::format("rank {} sees {}, rank {} sees {}: all workers need the same data", rank,
                       theirs, *first_, ours);
  }
  if (hello.data_fingerprint() != data_fingerprint_) {
    return fmt::format(
        "the data of rank {} and rank {} have the same size but other contents: all "
        "workers need the same data",
        rank, *first_);
  }
  return std::nullopt;
}

std::optional<uint32_t> Roster::RankOf(PeerId peer) const {
  for (uint32_t rank = 0; rank < size(); ++rank) {
    if (members_[rank].peer == peer) return rank;
  }
  return std::nullopt;
}

bool Roster::Matches(uint32_t rank, const wire::Address& address) const {
  return address.job() == terms_.job && address.rank() == rank &&
         address.incarnation() == members_[rank].incarnation;
}

bool Roster::Complete() const { return MissingRanks().empty(); }

std::vector<uint32_t> Roster::MissingRanks() const {
  std::vector<uint32_t> missing;
  for (uint32_t rank = 0; rank < terms_.workers; ++rank) {
    if (!members_[rank].peer && !members_[rank].given_up) missing.push_back(rank);
  }
  return missing;
}

std::string Roster::Name(uint32_t rank) const {
  return fmt::format("rank {} (host {}, pid {})", rank, members_[rank].host, members_[rank].pid);
}

std::string Roster::Remark(uint32_t rank) const {
  if (!first_ || members_[rank].threads == members_[*first_].threads) return "";
  return fmt::format(
      "it computes with {} threads, rank {} with {}: the bits of the result can depend on that "
      "(worker.threads)",
      members_[rank].threads, *first_, members_[*first_].threads);
}

}  // namespace muster
