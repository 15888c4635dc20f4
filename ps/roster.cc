#include "ps/roster.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "common/base/join.h"
#include "common/base/log.h"
#include "common/config/compute_settings.h"
#include "common/link/protocol.h"

namespace muster {
Roster::Roster(const VariableLayout& layout, JoinTerms terms)
    : layout_(layout), terms_(std::move(terms)), members_(terms_.workers) {}

std::optional<std::string> Roster::Join(PeerId peer, const wire::Address& address,
                                        const wire::Hello& hello) {
  if (!SameToken(hello.token(), terms_.token)) {
    return kWrongToken;
  }
  if (hello.protocol_version() != kProtocolVersion) {
    return fmt::format(
        "protocol version {}: expected {}; use the same release of Muster for "
        "server and workers",
        hello.protocol_version(), kProtocolVersion);
  }
  const uint32_t rank = address.rank();
  if (rank >= members_.size()) {
    return fmt::format("rank {}: this job has the ranks 0 to {}", rank, members_.size() - 1);
  }
  if (members_[rank].peer) {
    return fmt::format("rank {} is taken by host {}, pid {}", rank, members_[rank].host,
                       members_[rank].pid);
  }
  if (auto reason = CheckGraph(hello)) return reason;
  if (auto reason = CheckSettings(hello)) return reason;
  if (auto reason = CheckData(rank, hello)) return reason;
  Member& member = members_[rank];
  member.peer = peer;
  member.incarnation = address.incarnation();
  member.host = Printable(hello.host());
  member.pid = hello.pid();
  member.threads = hello.threads();
  member.arithmetic = Printable(hello.arithmetic());
  member.last_heard = std::chrono::steady_clock::now();
  if (!first_) {
    first_ = rank;
    train_samples_ = hello.train_samples();
    test_samples_ = hello.test_samples();
    data_fingerprint_ = hello.data_fingerprint();
  }
  return std::nullopt;
}

std::optional<std::string> Roster::Reseat(PeerId peer, const wire::Address& address,
                                          const wire::Hello& hello) {
  if (!SameToken(hello.token(), terms_.token)) {
    return kWrongToken;
  }
  const uint32_t rank = address.rank();
  const bool seated = rank < members_.size() && Matches(rank, address) &&
                      members_[rank].host == Printable(hello.host()) &&
                      members_[rank].pid == hello.pid() && !members_[rank].ready;
  if (!seated) return fmt::format("rank {} has no such worker that waits for its memory", rank);
  members_[rank].peer = peer;
  members_[rank].last_heard = std::chrono::steady_clock::now();
  return std::nullopt;
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
  if (!first_) return std::nullopt;
  if (hello.train_samples() != train_samples_ || hello.test_samples() != test_samples_) {
    return fmt::format(
        "rank {} sees {} training and {} test samples, rank {} sees {} and {}: all "
        "workers need the same data",
        rank, hello.train_samples(), hello.test_samples(), *first_, train_samples_, test_samples_);
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
  for (uint32_t rank = 0; rank < size(); ++rank) {
    if (!members_[rank].peer) missing.push_back(rank);
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
