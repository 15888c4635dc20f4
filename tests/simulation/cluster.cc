#include "tests/simulation/cluster.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/denormals.h"
#include "common/base/error.h"
#include "common/transport/relayed_server_link.h"
#include "ps/update/thread_pool.h"
#include "tests/job/test_job.h"
#include "worker/relay/relay.h"

namespace muster::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLongest{4 * 3600};  // a longer run is stuck
constexpr milliseconds kGlance{100};   // between the launcher's checks of its processes

// The default deadlines, except those of hours.
config::Config ConfigOf(const ModelJob& job, const Scenario& scenario) {
  config::Config config = job.config();
  config.mutable_cluster()->set_min_workers(scenario.min_workers);
  config.mutable_cluster()->set_on_lost_worker(scenario.on_lost_worker);
  if (scenario.bytes_per_second > 0) return config;
  config::Deadlines& deadlines = *config.mutable_deadlines();
  deadlines.set_start_s(200);  // longer than any fault
  deadlines.set_first_step_s(60);
  deadlines.set_step_s(60);
  deadlines.set_progress_s(60);
  deadlines.set_silence_s(20);
  return config;
}

}  // namespace

Cluster::Cluster(const Scenario& scenario, uint64_t seed, Log log)
    : scenario_(scenario),
      deadly_(scenario.deadly),
      job_(scenario.bounds),
      config_(ConfigOf(job_, scenario)),
      log_(std::move(log)),
      chance_(~seed),
      network_(scheduler_, chance_,
               {.sent = [this](const auto& connection, const auto& message,
                               auto tensor) { CheckSent(connection, message, tensor); },
                .received =
                    [this](const Connection& connection, const wire::WorkerMessage& message) {
                      if (log_ && !message.has_heartbeat() && !message.has_step_times()) {
                        Say("  peer {} ─▶ {}", connection.peer, message.ShortDebugString());
                      }
                    },
                .idle = [this] { Observe(); }}),
      checkpoints_(job_) {
  FlushDenormals();
  if (scenario_.bytes_per_second > 0) {
    network_.LimitRate(scenario_.bytes_per_second, std::ranges::max(scenario_.hosts) + 1);
  }
}

// Destroys processes first, because their stacks use everything else.
Cluster::~Cluster() {
  for (Member& member : members_) {
    network_.Abandon(*member.process, true);
    member.process->Kill();
  }
  for (const auto& relay : relays_) KillRelay(*relay);
  for (const auto& server : servers_) server->Kill();
}

std::string Cluster::Run() {
  StartServer(nullptr);
  for (const ClusterFault& fault : scenario_.faults) {
    scheduler_.After(fault.at, [this, &fault] { Play(fault); });
  }
  Supervise();
  while (!over_ && wrong_.empty() && scheduler_.Step()) {
    if (std::chrono::duration<double>(kLongest).count() < virtual_seconds()) {
      Fail("the run does not end" +
           (probe_ ? ":\n" + probe_->Text() : std::string(": there is no server")));
    }
  }
  return wrong_;
}

// ---------------------------------------------------------------------------------- the server

void Cluster::StartServer(std::unique_ptr<ResumePoint> from) {
  servers_.push_back(std::make_unique<SimulatedProcess>(
      scheduler_,
      [this, from = std::shared_ptr<ResumePoint>(std::move(from))] { Serve(from.get()); }));
}

void Cluster::Serve(const ResumePoint* from) {
  network_.Place(*servers_.back(), 0);
  Say("a server starts{}", from ? " from " + from->checkpoint.name.Text() : "");
  Recorder recorder(config_, job_.graph(), -1, from ? &from->state() : nullptr);
  std::unique_ptr<ServerLink> link = network_.Listen(*servers_.back());
  if (!scenario_.relays.empty()) link = WithRelays(std::move(link));
  Server server(config_, job_.graph(), TestToken(), std::move(link), recorder, -1, from);
  server_ = &server;
  probe_ = std::make_unique<ServerProbe>(server);
  struct Forget {
    Cluster& cluster;
    ~Forget() {
      cluster.server_ = nullptr;
      cluster.probe_.reset();
    }
  } forget{*this};
  const auto& hosts = scenario_.relays;
  relay_of_.assign(hosts.empty() ? 0 : static_cast<size_t>(std::ranges::max(hosts) + 1), nullptr);
  for (size_t host = 0; host < relay_of_.size(); ++host) StartRelay(host);
  for (uint32_t rank = 0; rank < job_.bounds().workers - scenario_.absent; ++rank) {
    scheduler_.After(chance_.Between(milliseconds(0), milliseconds(300)),
                     [this, rank, number = servers_.size()] {
                       if (number == servers_.size() && server_ != nullptr) StartWorker(rank);
                     });
  }
  try {
    const ServerResult result = server.Serve();
    if (result.weights_hash != job_.weights_hash()) {
      Fail("the final weights differ from those of the undisturbed run");
    }
    Say("the run is complete");
  } catch (const Error& error) {
    const std::string what = error.what();
    const bool blames = what.find("killed 3 workers") != std::string::npos;
    blames ? blamed_ = what : wrong_ = "the run has failed: " + what;
    Say("the run has failed: {}", error.what());
  }
  over_ = true;
}

// Called before the server sleeps.
void Cluster::Observe() {
  if (probe_ == nullptr) return;
  if (std::string wrong = probe_->Wrong(job_); !wrong.empty()) Fail(wrong);
  checkpoints_.Keep(*probe_);
  if (!checkpoints_.wrong().empty()) Fail(checkpoints_.wrong());
}

void Cluster::CheckSent(const Connection& connection, const wire::ServerMessage& message,
                        std::span<const std::byte> tensor) {
  if (message.train().urgent()) ++redone_;
  if (!message.has_weights_chunk()) {
    if (log_ && !message.has_heartbeat()) {
      Say("  peer {} ◀─ {}", connection.peer,
          message.has_welcome() ? "Welcome" : message.ShortDebugString());
    }
    return;
  }
  const wire::WeightsChunk& weights = message.weights_chunk();
  if (weights.version() > job_.plan().total_steps) {
    return Fail(fmt::format("W({}) is sent, which does not exist", weights.version()));
  }
  if (message.has_via() && tensor.empty()) return;  // the relay has it
  const Chunk& chunk = job_.chunks()[weights.chunk()];
  const auto all =
      weights.average() ? job_.Average(weights.version()) : job_.Weights(weights.version());
  const auto must = all.subspan(chunk.begin, chunk.floats());
  if (tensor.size() == must.size_bytes() &&
      std::memcmp(tensor.data(), must.data(), tensor.size()) == 0) {
    return;
  }
  Fail(fmt::format("chunk {} of {}W({}) is sent with other bits than in the undisturbed run",
                   weights.chunk(), weights.average() ? "the average of " : "", weights.version()));
}

// ---------------------------------------------------------------------------------- workers

void Cluster::StartWorker(std::optional<uint32_t> rank) {
  Member& member = members_.emplace_back();
  member.rank = rank;
  member.pid = std::ssize(members_);
  member.process =
      std::make_unique<SimulatedProcess>(scheduler_, [this, &member] { Live(member); });
  const std::vector<bool>& shares = scenario_.shares_memory;
  WorkerTraits traits{.rank = rank,
                      .pid = member.pid,
                      .shares_memory = shares[rank.value_or(0) % shares.size()],
                      .slice_time = scenario_.slice_time,
                      .deadly = &deadly_,
                      .relay = {}};
  if (!scenario_.hosts.empty()) network_.Place(*member.process, scenario_.hosts.at(rank.value()));
  const std::vector<int>& relays = scenario_.relays;
  const int host = relays.empty() ? -1 : relays[rank.value_or(0) % relays.size()];
  if (host >= 0) {
    traits.relay = [this, host] { return RelayOf(static_cast<size_t>(host)); };
  }
  member.worker = std::make_unique<SimulatedWorker>(job_, chance_, network_, *member.process,
                                                    std::move(traits));
}

// ---------------------------------------------------------------------------------- relays

void Cluster::StartRelay(size_t host) {
  struct Self {
    SimulatedProcess* process = nullptr;
  };
  const auto self = std::make_shared<Self>();
  relays_.push_back(std::make_unique<SimulatedProcess>(
      scheduler_, [this, host, self] { LiveAsRelay(*self->process, host); }));
  self->process = relays_.back().get();
  for (size_t rank = 0; rank < scenario_.hosts.size(); ++rank) {
    if (scenario_.relays[rank] == static_cast<int>(host)) {
      network_.Place(*self->process, scenario_.hosts[rank]);
    }
  }
  relay_of_[host] = relays_.back().get();
}

void Cluster::LiveAsRelay(SimulatedProcess& relay, size_t host) {
  try {
    std::unique_ptr<ServerLink> below = WithRelays(network_.ListenAsRelay(relay));
    const SimulatedProcess* via = nullptr;
    const int next = host < scenario_.via.size() ? scenario_.via[host] : -1;
    for (int i = 0; next >= 0 && via == nullptr && i < 100; ++i) {
      via = RelayOf(static_cast<size_t>(next));
      if (via == nullptr) relay.Sleep(milliseconds(100));
    }
    Relay(std::move(below), network_.ConnectRelay(relay, via),
          {.without_workers = seconds(200), .silence = seconds(20)})
        .Run();
  } catch (const Error& error) {
    Say("the relay of host {} ends: {}", host, error.what());
  }
}

const SimulatedProcess* Cluster::RelayOf(size_t host) const {
  const SimulatedProcess* const relay = relay_of_[host];
  return relay != nullptr && network_.Listens(*relay) ? relay : nullptr;
}

SimulatedProcess* Cluster::PickRelay(uint32_t number) const {
  if (relay_of_.empty()) return nullptr;
  SimulatedProcess* const relay = relay_of_[number % relay_of_.size()];
  return relay == nullptr || relay->ended() ? nullptr : relay;
}

void Cluster::KillRelay(SimulatedProcess& relay) {
  network_.Abandon(relay, true);
  relay.Kill();
}

void Cluster::SuperviseRelays() {
  for (size_t host = 0; host < relay_of_.size(); ++host) {
    if (relay_of_[host] == nullptr || !relay_of_[host]->ended() || server_ == nullptr) continue;
    relay_of_[host] = nullptr;
    scheduler_.After(chance_.Between(milliseconds(50), milliseconds(2000)),
                     [this, host, number = servers_.size()] {
                       if (number == servers_.size() && server_ != nullptr) StartRelay(host);
                     });
  }
}

void Cluster::Live(Member& member) {
  try {
    member.worker->Run();
  } catch (const Error& error) {
    member.code = error.code();
    member.error = error.what();
  }
  Say("{} ends: {}", NameOf(member), member.error.empty() ? "done" : member.error);
  const auto says = [&](const char* what) { return member.error.find(what) != std::string::npos; };
  const bool blames_end = member.code != ExitCode::kOk && says("the run is complete");
  // A replacement waits until the server has noticed the loss of the old worker.
  const bool gave_up = member.code == ExitCode::kRefused && says("is taken by");
  if (blames_end || gave_up || says("does not fit this job")) {
    Fail(NameOf(member) + ": " + member.error);
  }
}

std::string Cluster::NameOf(const Member& member) const {
  const Connection* const connection = network_.ConnectionOf(*member.process);
  return fmt::format("worker {} (peer {})", member.rank ? static_cast<int>(*member.rank) : -1,
                     connection != nullptr ? connection->peer : 0);
}

std::optional<uint32_t> Cluster::RankOf(const Member& member) const {
  const Roster& roster = probe_->roster();
  for (uint32_t rank = 0; rank < roster.size(); ++rank) {
    if (roster.at(rank).present() && roster.at(rank).pid == member.pid) return rank;
  }
  return std::nullopt;
}

// Like `muster launch`, restarts ended workers with their rank. If the server has dropped a worker
// that is still running, kills it first.
void Cluster::Supervise() {
  SuperviseRelays();
  for (size_t i = 0; i < members_.size(); ++i) {
    Member& member = members_[i];
    if (member.buried || probe_ == nullptr) continue;
    if (member.process->ended()) {
      Bury(member);
      continue;
    }
    const std::optional<uint32_t> rank = RankOf(member);
    const bool seated = rank.has_value();
    if (seated) member.rank = rank;
    if (std::exchange(member.seated, seated) && !seated) {
      scheduler_.After(chance_.Between(seconds(0), seconds(5)), [this, &member] {
        if (member.buried || member.process->ended()) return;
        Say("the launcher kills {}, which has lost its rank", NameOf(member));
        Kill(member, true);
      });
    }
  }
  scheduler_.After(kGlance, [this] { Supervise(); });
}

void Cluster::Bury(Member& member) {
  member.buried = true;
  if (!member.rank || probe_ == nullptr || probe_->done()) return;
  const bool has_left = member.leaves && !member.killed && member.code == ExitCode::kOk;
  if (has_left && probe_->has_begun()) return;  // it left intentionally
  if (!scenario_.replaces) return;
  if (*member.rank >= job_.bounds().workers) return;  // an additional worker
  scheduler_.After(chance_.Between(milliseconds(50), milliseconds(2000)),
                   [this, rank = *member.rank, number = servers_.size()] {
                     if (number == servers_.size() && server_ != nullptr) StartWorker(rank);
                   });
}

Cluster::Member* Cluster::Pick(uint32_t number) {
  std::vector<Member*> alive;
  for (Member& member : members_) {
    if (!member.process->ended()) alive.push_back(&member);
  }
  return alive.empty() ? nullptr : alive[number % alive.size()];
}

// ---------------------------------------------------------------------------------- faults

void Cluster::Kill(Member& member, bool noticed) {
  member.killed = true;
  network_.Abandon(*member.process, noticed);
  member.process->Kill();
}

// The launcher ends the workers and restarts from the newest valid checkpoint.
void Cluster::KillServer() {
  network_.AbandonServer();
  servers_.back()->Kill();
  for (const auto& relay : relays_) KillRelay(*relay);
  for (Member& member : members_) {
    if (member.buried) continue;
    member.buried = true;
    Kill(member, true);
  }
  const size_t lost = chance_.Below(ModelCheckpoints::kMostLost + 1);
  std::optional<ResumePoint> from = checkpoints_.GoOn(lost);
  scheduler_.After(
      chance_.Between(milliseconds(100), seconds(2)),
      [this, from = std::make_shared<std::optional<ResumePoint>>(std::move(from))] {
        StartServer(*from ? std::make_unique<ResumePoint>(std::move(**from)) : nullptr);
      });
}

void Cluster::Play(const ClusterFault& fault) {
  if (server_ == nullptr) return;  // a new one is about to start
  Member* const member = Pick(fault.worker);
  const auto tell = [&] {
    Say("FAULT: {} {} for {:.3f} s, x{}", testing::NameOf(fault.kind),
        member != nullptr ? NameOf(*member) : "",
        std::chrono::duration<double>(fault.lasts).count(), fault.factor);
  };
  if (fault.kind == ClusterFault::Kind::kKillServer ||
      fault.kind == ClusterFault::Kind::kSuspendServer || fault.kind == ClusterFault::Kind::kJoin ||
      member != nullptr) {
    tell();
  }
  switch (fault.kind) {
    case ClusterFault::Kind::kKillServer:
      return KillServer();
    case ClusterFault::Kind::kSuspendServer:
      return servers_.back()->Suspend(fault.lasts);
    case ClusterFault::Kind::kJoin:
      return StartWorker(std::nullopt);
    case ClusterFault::Kind::kKillRelay:
      if (SimulatedProcess* const relay = PickRelay(fault.worker)) KillRelay(*relay);
      return;
    case ClusterFault::Kind::kSuspendRelay:
      if (SimulatedProcess* const relay = PickRelay(fault.worker)) relay->Suspend(fault.lasts);
      return;
    case ClusterFault::Kind::kSlowDownAll:
      for (Member& one : members_) one.worker->SlowDown(fault.factor);
      return;
    case ClusterFault::Kind::kSlowWire:
      for (Member& one : members_) {
        Connection* const connection = network_.ConnectionOf(*one.process);
        if (one.rank == fault.worker && connection) connection->to_worker.SlowDown(fault.factor);
      }
      return;
    case ClusterFault::Kind::kKillAll:
      for (Member& one : members_) {
        if (one.process->ended()) continue;
        scheduler_.After(chance_.Between(milliseconds(0), milliseconds(200)), [this, &one] {
          if (!one.process->ended()) Kill(one, true);
        });
      }
      return;
    default:
      break;
  }
  if (member == nullptr) return;
  switch (fault.kind) {
    case ClusterFault::Kind::kKill:
      return Kill(*member, true);
    case ClusterFault::Kind::kLoseHost:
      return Kill(*member, false);
    case ClusterFault::Kind::kSuspend:
      return member->process->Suspend(fault.lasts);
    case ClusterFault::Kind::kSlowDown:
      return member->worker->SlowDown(fault.factor);
    case ClusterFault::Kind::kPartition:
      if (Connection* const connection = network_.ConnectionOf(*member->process)) {
        connection->to_server.Hold(fault.lasts);
        connection->to_worker.Hold(fault.lasts);
      }
      return;
    case ClusterFault::Kind::kLeave: {
      // At least one must stay.
      const auto stays = [&](const Member& one) { return !one.process->ended() && !one.leaves; };
      if (std::ranges::count_if(members_, stays) < 2) return;
      member->leaves = true;
      return member->worker->Leave();
    }
    default:
      return;
  }
}

}  // namespace muster::testing
