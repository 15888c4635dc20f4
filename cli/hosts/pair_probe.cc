#include "cli/hosts/pair_probe.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/process/token.h"
#include "common/base/error.h"

namespace muster {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kMostWait{20};  // a host gives up on another one sooner
constexpr std::chrono::seconds kStay{5};       // an agent waits longer for the next message

class PairProbe {
 public:
  PairProbe(const SshCommand& ssh, const std::vector<ProbedHost>& hosts);

  std::vector<PairLink> Run();

 private:
  // The measurement of one pair.
  struct Talk {
    PairLink* pair;
    std::string secret = NewToken();
    std::string endpoint = {};               // at which the first host listens
    std::optional<ProbeListener> here = {};  // if that is this one
    bool measured = false, connected = false;
    bool over() const { return measured && connected; }
  };
  using Talks = std::vector<Talk>;

  void RunRound(Talks& talks);
  void Listen(Talk& talk);
  void MeasureHere(Talk& talk);
  // Takes messages until this holds for all talks. Gives up on hosts that do not answer.
  void Await(Talks& talks, const std::function<bool(const Talk&)>& done);
  void Take(const Json& message, size_t host, Talks& talks);
  void GiveUp(size_t host, const std::string& why, Talks& talks);

  const std::vector<ProbedHost>& hosts_;
  std::vector<std::unique_ptr<RemoteHost>> connections_;  // null: this host, or given up
  std::vector<std::string> troubles_;                     // why it was given up
};

PairProbe::PairProbe(const SshCommand& ssh, const std::vector<ProbedHost>& hosts)
    : hosts_(hosts), troubles_(hosts.size()) {
  for (const ProbedHost& host : hosts) {
    connections_.push_back(host.here ? nullptr : std::make_unique<RemoteHost>(ssh, host.name));
  }
}

void PairProbe::Listen(Talk& talk) {
  const ProbedHost& host = hosts_[talk.pair->first];
  if (!host.here) {
    connections_[talk.pair->first]->Send(
        {{"measure", {{"address", host.address}, {"secret", talk.secret}}}});
    return;
  }
  talk.here.emplace(host.address);
  talk.endpoint = talk.here->endpoint();
}

void PairProbe::MeasureHere(Talk& talk) {
  try {
    const UniqueFd peer = talk.here->Await(talk.secret);
    if (peer.valid()) talk.pair->link = MeasureLink(peer, /*bandwidth=*/true);
  } catch (const Error& error) {
    talk.pair->problem = error.what();
  }
  talk.measured = true;
}

void PairProbe::RunRound(Talks& talks) {
  for (Talk& talk : talks) {
    for (const size_t host : {talk.pair->first, talk.pair->second}) {
      if (!troubles_[host].empty()) talk.pair->problem = troubles_[host];
    }
    talk.measured = talk.connected = !talk.pair->problem.empty();
    if (!talk.over()) Listen(talk);
  }
  Await(talks, [](const Talk& talk) { return talk.over() || !talk.endpoint.empty(); });
  for (Talk& talk : talks) {
    if (talk.over()) continue;
    connections_[talk.pair->second]->Send(
        {{"connect", {{"endpoint", talk.endpoint}, {"secret", talk.secret}}}});
  }
  for (Talk& talk : talks) {
    if (talk.here && !talk.over()) MeasureHere(talk);
    talk.here.reset();
  }
  Await(talks, &Talk::over);
}

void PairProbe::Take(const Json& message, size_t host, Talks& talks) {
  const auto found = std::ranges::find_if(talks, [&](const Talk& talk) {
    return !talk.over() && (talk.pair->first == host || talk.pair->second == host);
  });
  if (found == talks.end()) return;
  Talk& talk = *found;
  try {
    if (message.contains("listening")) {
      talk.endpoint = message.at("listening").get<std::string>();
    } else if (message.contains("measured")) {
      const Json& values = message.at("measured");
      talk.pair->link = {.latency_s = values.at(0).get<double>(),
                         .to_peer = values.at(1).get<double>(),
                         .from_peer = values.at(2).get<double>()};
      talk.measured = true;
    } else if (message.contains("unmeasured")) {
      const auto problem = message.at("unmeasured").get<std::string>();
      if (!problem.empty()) talk.pair->problem = problem;
      talk.measured = true;
      if (talk.endpoint.empty()) talk.connected = true;  // it cannot listen
    } else if (message.contains("connected")) {
      const auto problem = message.at("connected").get<std::string>();
      if (talk.pair->problem.empty()) talk.pair->problem = problem;
      talk.connected = true;
    }
  } catch (const Json::exception&) {  // not from an agent
  }
}

void PairProbe::GiveUp(size_t host, const std::string& why, Talks& talks) {
  connections_[host].reset();
  troubles_[host] = fmt::format("host {}: {}", hosts_[host].name, why);
  for (Talk& talk : talks) {
    if (talk.over() || (talk.pair->first != host && talk.pair->second != host)) continue;
    if (talk.pair->problem.empty()) talk.pair->problem = troubles_[host];
    talk.measured = talk.connected = true;
  }
}

void PairProbe::Await(Talks& talks, const std::function<bool(const Talk&)>& done) {
  const auto end = Clock::now() + kMostWait;
  auto stay = Clock::now();
  while (!std::ranges::all_of(talks, done)) {
    const bool say = Clock::now() >= stay;
    if (say) stay = Clock::now() + kStay;
    std::vector<pollfd> events;
    for (const auto& connection : connections_) {
      if (connection == nullptr) continue;
      if (say) connection->Send({{"stay", true}});
      for (const int fd : connection->fds()) events.push_back({.fd = fd, .events = POLLIN});
    }
    ::poll(events.data(), events.size(), 100);
    for (size_t host = 0; host < hosts_.size(); ++host) {
      RemoteHost* const connection = connections_[host].get();
      if (connection == nullptr) continue;
      connection->Read([&](const Json& message) { Take(message, host, talks); },
                       [](const std::string&) {});
      if (connection->ended()) GiveUp(host, connection->Trouble(), talks);
    }
    if (Clock::now() < end) continue;
    for (Talk& talk : talks) {
      if (done(talk)) continue;
      const bool first = !talk.measured && !hosts_[talk.pair->first].here;
      GiveUp(first ? talk.pair->first : talk.pair->second,
             fmt::format("no answer within {} s", kMostWait.count()), talks);
    }
  }
}

std::vector<PairLink> PairProbe::Run() {
  std::vector<PairLink> pairs;
  for (const auto& round : PairRounds(hosts_.size())) {
    std::vector<PairLink> now;
    now.reserve(round.size());
    for (const auto& [first, second] : round) now.push_back({.first = first, .second = second});
    Talks talks;
    talks.reserve(now.size());
    for (PairLink& pair : now) talks.push_back({.pair = &pair});
    RunRound(talks);
    for (PairLink& pair : now) {
      if (pair.link.latency_s > 0) pair.problem.clear();  // it ended well for the first one
      if (pair.link.latency_s <= 0 && pair.problem.empty()) pair.problem = "nobody connected";
    }
    pairs.insert(pairs.end(), now.begin(), now.end());
  }
  for (const auto& connection : connections_) {
    if (connection != nullptr) connection->Close();  // all end at the same time
  }
  return pairs;
}

}  // namespace

// The circle method: the last one stays, the others go round. With an odd number one is left out.
std::vector<std::vector<std::pair<size_t, size_t>>> PairRounds(size_t hosts) {
  std::vector<std::vector<std::pair<size_t, size_t>>> rounds;
  const size_t all = hosts + hosts % 2, circle = all - 1;
  for (size_t round = 0; all > 0 && round < circle; ++round) {
    rounds.emplace_back();
    for (size_t i = 0; i < all / 2; ++i) {
      const size_t one = (round + i) % circle;
      const size_t other = i == 0 ? circle : (round + circle - i) % circle;
      if (std::max(one, other) < hosts) rounds.back().push_back(std::minmax({one, other}));
    }
  }
  return rounds;
}

std::vector<PairLink> MeasurePairs(const SshCommand& ssh, const std::vector<ProbedHost>& hosts) {
  return PairProbe(ssh, hosts).Run();
}

}  // namespace muster
