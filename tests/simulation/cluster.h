// A run of a job in a simulated cluster: the real server and clients, a network and processes that
// fail, and a launcher that restarts them. The seed determines everything.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ps/record/recorder.h"
#include "ps/run/server.h"
#include "tests/protocol/model_checkpoints.h"
#include "tests/protocol/model_job.h"
#include "tests/protocol/server_probe.h"
#include "tests/simulation/network.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/scheduler.h"
#include "tests/simulation/worker.h"

namespace muster::testing {

class Cluster {
 public:
  // Called with descriptions of events.
  using Log = std::function<void(const std::string& line)>;
  Cluster(const Scenario& scenario, uint64_t seed, Log log = {});
  ~Cluster();

  // Plays the run to its end. Returns the error, or "".
  std::string Run();
  // The work that killed three workers, and so ended the run, in the server's words; or "".
  const std::string& blamed() const { return blamed_; }
  double virtual_seconds() const { return scheduler_.seconds(); }
  int64_t redone() const { return redone_; }  // orders to compute slices of other workers

 private:
  struct Member {
    int64_t pid = 0;
    std::unique_ptr<SimulatedWorker> worker;
    std::unique_ptr<SimulatedProcess> process;
    std::optional<uint32_t> rank;  // its actual or requested rank
    bool seated = false;
    bool leaves = false;
    bool killed = false;
    bool buried = false;  // the launcher has noticed its end
    std::string error;
    ExitCode code = ExitCode::kOk;
  };

  void StartServer(std::unique_ptr<ResumePoint> from);
  void Serve(const ResumePoint* from);
  void StartWorker(std::optional<uint32_t> rank);
  void StartRelay(size_t host);
  void LiveAsRelay(SimulatedProcess& relay, size_t host);
  // The relay of a host, if it listens.
  const SimulatedProcess* RelayOf(size_t host) const;
  SimulatedProcess* PickRelay(uint32_t number) const;
  void KillRelay(SimulatedProcess& relay);
  void SuperviseRelays();
  // The rank of a living worker.
  std::optional<uint32_t> RankOf(const Member& member) const;
  void Live(Member& member);
  void Supervise();
  void Bury(Member& member);
  void Play(const ClusterFault& fault);
  Member* Pick(uint32_t number);
  void Kill(Member& member, bool noticed);
  void KillServer();
  void Observe();
  void Fail(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }
  template <typename... Args>
  void Say(fmt::format_string<Args...> format, Args&&... args) const {
    if (log_)
      log_(fmt::format("{:9.3f}  ", virtual_seconds()) +
           fmt::vformat(format, fmt::make_format_args(args...)));
  }
  std::string NameOf(const Member& member) const;
  void CheckSent(const Connection& connection, const wire::ServerMessage& message,
                 std::span<const std::byte> tensor);

  const Scenario scenario_;
  Deadly deadly_;  // what is left of it
  const ModelJob job_;
  const config::Config config_;
  const Log log_;
  Chance chance_;
  Scheduler scheduler_;
  Network network_;
  ModelCheckpoints checkpoints_;

  std::deque<Member> members_;
  std::deque<std::unique_ptr<SimulatedProcess>> servers_;  // only the last one is running
  std::deque<std::unique_ptr<SimulatedProcess>> relays_;
  std::vector<SimulatedProcess*> relay_of_;  // by host; null while it is about to be started
  Server* server_ = nullptr;                 // null if none is running
  std::unique_ptr<ServerProbe> probe_;
  bool over_ = false;
  std::string blamed_;
  int64_t redone_ = 0;
  std::string wrong_;
};

}  // namespace muster::testing
