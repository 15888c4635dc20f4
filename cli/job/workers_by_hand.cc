#include "cli/job/workers_by_hand.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>

#include "cli/cluster/server_address.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/config/config.h"
#include "common/config/job_size.h"
#include "common/link/protocol.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// `usual` is the endpoint that `muster launch` would use for this config.
ListenAddress AddressByHand(const WorkersByHand& by_hand, const config::Config& config,
                            const std::string& usual) {
  const bool chosen = !by_hand.endpoint.empty() || !by_hand.bind.empty();
  // Shared memory works only on this host: it needs a name, and any name will do.
  if (!chosen && config.cluster().transport() == config::Cluster::LOCAL) return {usual, usual};
  return ChooseListenAddress(by_hand.endpoint, by_hand.bind);
}

// Notes for the user about who can reach the server.
std::vector<std::string> Notes(const ListenAddress& address, bool encrypted) {
  if (!IsTcp(address.bind)) return {};
  if (encrypted) {
    return {"  Connections are encrypted; only workers with the token can join."};
  }
  const ResolvedAddress listening(TcpAddress::Parse(address.bind));
  if (!listening.loopback()) {
    return {"  Other hosts can reach it, and nothing, not even the token, is encrypted",
            "  (cluster.encryption=NONE): use a network that you trust."};
  }
  const std::string host = TcpAddress::Parse(address.endpoint).host;
  const bool numeric = host.find_first_not_of("0123456789.:") == std::string::npos;
  if (numeric || host == "localhost" || address.bind != address.endpoint) return {};
  return {fmt::format("  {} means {} on this host, which no other host can reach;", host,
                      listening.ToEndpoint()),
          "  to allow other hosts, use --bind with an address of the network."};
}

}  // namespace

std::vector<std::string> HandLines(const ListenAddress& address, const std::string& endpoint,
                                   bool encrypted, int workers, const RunDir& dir,
                                   const std::string& token_file) {
  const bool elsewhere = address.bind != address.endpoint;
  std::vector<std::string> lines{fmt::format(
      "Listening at {}{}", endpoint, elsewhere ? fmt::format(" (bound to {})", address.bind) : "")};
  for (std::string& note : Notes(address, encrypted)) lines.push_back(std::move(note));
  lines.push_back(workers == 1
                      ? "Start the worker:"
                      : fmt::format("Start the workers, with ranks 0 to {}:", workers - 1));
  // The worker may be started in another folder than the server.
  const auto absolute = [](const std::string& path) {
    return ShellWord(fs::absolute(path).lexically_normal().string());
  };
  lines.push_back(fmt::format("  muster worker {} --rank 0 --endpoint {}{}",
                              absolute(dir.ConfigPath()), endpoint,
                              token_file.empty() ? "" : " --token-file " + absolute(token_file)));
  std::string files = "config.txtpb";
  if (token_file.empty()) {
    lines.push_back(fmt::format("  with {} set to the same value as here.", kTokenVariable));
  } else {
    files = "both files";
  }
  if (IsTcp(endpoint)) {
    lines.push_back(fmt::format(
        "  On another host: copy {}, and name its data directory (--data DIR).", files));
  }
  return lines;
}

WorkersByHand WithInterface(WorkersByHand by_hand, const config::Config& config) {
  const std::string& interface = config.cluster().interface();
  if (!interface.empty() && by_hand.endpoint.empty() && by_hand.bind.empty()) {
    by_hand.endpoint = AddressOfInterface(interface).endpoint();
  }
  return by_hand;
}

void CheckWorkersByHand(const WorkersByHand& by_hand) {
  const ListenAddress address = ChooseListenAddress(by_hand.endpoint, by_hand.bind);
  if (IsTcp(address.bind)) (void)ResolvedAddress(TcpAddress::Parse(address.bind));
  if (!by_hand.token_file.empty()) (void)ReadToken(by_hand.token_file);
}

void ResolveAddress(const WorkersByHand& by_hand, config::Config& config) {
  const ListenAddress address = ChooseListenAddress(by_hand.endpoint, by_hand.bind);
  config::Cluster& cluster = *config.mutable_cluster();
  if (cluster.transport() == config::Cluster::LOCAL) return;
  const bool reaches_others =
      IsTcp(address.bind) && !ResolvedAddress(TcpAddress::Parse(address.bind)).loopback();
  if (reaches_others && !cluster.has_chunk_bytes()) cluster.set_chunk_bytes(kSocketChunk);
  if (!IsEncrypted(cluster, address)) return;
  cluster.set_encryption(config::Cluster::CURVE);
  KeepOutOfCoreDumps();  // this process creates the token
}

MadeToken::~MadeToken() { ::unlink(dir_.TokenPath().c_str()); }

std::unique_ptr<MadeToken> PlanWorkersByHand(const WorkersByHand& by_hand, JobPlan& plan) {
  const ListenAddress address = AddressByHand(by_hand, *plan.config, plan.endpoint);
  plan.endpoint = address.endpoint;
  plan.bind = address.bind;
  std::string file = by_hand.token_file;  // stays empty if the token is in the environment
  plan.token = FindToken(file);
  std::unique_ptr<MadeToken> made;
  if (plan.token.empty()) {
    file = plan.dir->shown() + "/token";
    // Left by a server that was killed; it may have been copied to other hosts.
    if (fs::exists(fs::symlink_status(plan.dir->TokenPath()))) {
      plan.token = ReadToken(plan.dir->TokenPath());
    } else {
      plan.token = NewToken();
      WriteTokenFile(plan.dir->TokenPath(), plan.token);
    }
    made = std::make_unique<MadeToken>(*plan.dir);
  }
  const bool encrypted = IsEncrypted(plan.config->cluster(), address);
  plan.invite_workers = [=, &plan](const std::string& endpoint) {
    return HandLines(address, endpoint, encrypted, plan.workers(), *plan.dir, file);
  };
  return made;
}

}  // namespace muster
