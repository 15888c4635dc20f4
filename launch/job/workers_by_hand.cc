#include "launch/job/workers_by_hand.h"

#include <unistd.h>

#include <filesystem>

#include "common/base/core_dumps.h"
#include "common/config/config.h"
#include "common/link/encryption.h"
#include "common/link/protocol.h"
#include "common/link/tcp_address.h"
#include "launch/job/hand_text.h"
#include "launch/job/job_token.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// The token of a job whose workers are started by hand, and the file that they are told of; empty
// if it came from the environment.
struct HandToken {
  std::string token, file;
};

HandToken TakeToken(const WorkersByHand& by_hand, const RunDir& dir) {
  HandToken result{FindToken(by_hand.token_file), by_hand.token_file};
  if (!result.token.empty()) return result;
  result.file = dir.shown() + "/token";
  if (fs::exists(fs::symlink_status(dir.TokenPath()))) {  // of an attempt that never got to run
    result.token = ReadToken(dir.TokenPath());
  } else {
    result.token = NewToken();
    WriteTokenFile(dir.TokenPath(), result.token);
  }
  return result;
}

// `usual` is what a launch of this config would use.
ListenAddress AddressByHand(const WorkersByHand& by_hand, const config::Config& config,
                            const std::string& usual) {
  const bool chosen = !by_hand.endpoint.empty() || !by_hand.bind.empty();
  // Nobody but this host shares memory: any name will do, and an address cannot.
  if (!chosen && config.cluster().transport() == config::Cluster::LOCAL) return {usual, usual};
  return ChooseListenAddress(by_hand.endpoint, by_hand.bind);
}

}  // namespace

void CheckWorkersByHand(const WorkersByHand& by_hand) {
  const ListenAddress address = ChooseListenAddress(by_hand.endpoint, by_hand.bind);
  if (IsTcp(address.bind)) (void)ResolvedAddress(TcpAddress::Parse(address.bind));
  if (!by_hand.token_file.empty()) (void)ReadToken(by_hand.token_file);
}

void ResolveEncryption(const WorkersByHand& by_hand, config::Config& config) {
  const ListenAddress address = ChooseListenAddress(by_hand.endpoint, by_hand.bind);
  if (config.cluster().transport() == config::Cluster::LOCAL) return;
  if (!IsEncrypted(config.cluster(), address)) return;
  config.mutable_cluster()->set_encryption(config::Cluster::CURVE);
  KeepOutOfCoreDumps();  // this process makes the token
}

void PlanWorkersByHand(const WorkersByHand& by_hand, const config::Config& config, JobPlan& plan) {
  const ListenAddress address = AddressByHand(by_hand, config, plan.endpoint);
  const HandToken token = TakeToken(by_hand, *plan.dir);
  plan.endpoint = address.endpoint;
  plan.bind = address.bind;
  plan.token = token.token;
  const bool encrypted = IsEncrypted(config.cluster(), address);
  plan.invite_workers = [=, &plan](const std::string& endpoint) {
    return HandLines({address, endpoint, encrypted}, plan.workers, *plan.dir, token.file);
  };
}

void ForgetToken(const WorkersByHand& by_hand, const RunDir& dir) {
  if (by_hand.token_file.empty() && dir.IsUsed()) ::unlink(dir.TokenPath().c_str());
}

}  // namespace muster
