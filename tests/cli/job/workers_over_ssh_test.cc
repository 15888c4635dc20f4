#include "cli/job/workers_over_ssh.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "proto/config.pb.h"

namespace muster {
namespace workers_over_ssh_test {

constexpr size_t kServer = 99;

// Hosts with these numbers of workers, of which number `here` is this one.
std::vector<Host> Hosts(const std::vector<uint32_t>& slots, size_t here) {
  std::vector<Host> hosts;
  for (size_t i = 0; i < slots.size(); ++i) {
    const std::string name = "h" + std::to_string(i);
    hosts.push_back({.name = name, .slots = slots[i], .here = i == here, .relay = "at " + name});
  }
  return hosts;
}

// For each host: the one whose relay leads to the server, kServer, or -1 if it has no relay.
std::vector<int> Parents(const std::vector<Host>& hosts, const config::Config& config = {}) {
  std::vector<int> parents;
  std::vector<bool> listens(hosts.size()), needed(hosts.size());
  for (size_t i = 0; i < hosts.size(); ++i) {
    const RelayPlan plan = PlanRelay(config, hosts, i);
    listens[i] = !plan.bind.empty();
    if (listens[i]) {
      EXPECT_EQ(plan.bind, hosts[i].relay);
    }
    int parent = plan.used ? static_cast<int>(kServer) : -1;
    for (size_t other = 0; other < hosts.size(); ++other) {
      if (plan.via.empty() || plan.via != hosts[other].relay) continue;
      parent = static_cast<int>(other);
      needed[other] = true;
    }
    parents.push_back(parent);
  }
  EXPECT_EQ(listens, needed);
  EXPECT_EQ(UsesRelays(config, {.hosts = hosts, .ssh = {}, .options = ""}),
            parents != std::vector<int>(hosts.size(), -1));
  return parents;
}

using Ints = std::vector<int>;
constexpr int kTop = static_cast<int>(kServer);

TEST(PlanRelay, TwoHostsNeedOneOnlyForSeveralWorkers) {
  EXPECT_EQ(Parents(Hosts({1, 1}, 0)), (Ints{-1, -1}));
  EXPECT_EQ(Parents(Hosts({1, 2}, 0)), (Ints{-1, kTop}));
  EXPECT_EQ(Parents(Hosts({4, 2}, 0)), (Ints{-1, kTop}));
  EXPECT_EQ(Parents(Hosts({4}, 7)), (Ints{kTop}));
}

TEST(PlanRelay, MoreHostsFormABinomialTree) {
  EXPECT_EQ(Parents(Hosts({1, 1, 1, 1}, 0)), (Ints{-1, -1, kTop, 2}));
  EXPECT_EQ(Parents(Hosts({2, 2, 2, 2, 2, 2, 2, 2}, 0)), (Ints{-1, kTop, kTop, 2, kTop, 4, 4, 6}));
  EXPECT_EQ(Parents(Hosts({2, 2, 2, 2, 2}, 0)), (Ints{-1, kTop, kTop, 2, kTop}));
}

TEST(PlanRelay, TheServersHostMayBeAnyOrNone) {
  EXPECT_EQ(Parents(Hosts({2, 2, 2, 2}, 9)), (Ints{kTop, 0, 0, 2}));
  EXPECT_EQ(Parents(Hosts({2, 2, 2, 2}, 2)), (Ints{kTop, 0, -1, kTop}));
  EXPECT_EQ(Parents(Hosts({2, 2, 2, 2}, 3)), (Ints{kTop, 0, 0, -1}));
}

TEST(PlanRelay, AHostThatCannotHaveOneIsLeftOut) {
  std::vector<Host> hosts = Hosts({2, 2, 2, 2}, 0);
  hosts[2].relay.clear();
  EXPECT_EQ(Parents(hosts), (Ints{-1, kTop, -1, kTop}));
}

TEST(PlanRelay, TheConfigDecides) {
  config::Config config;
  config.mutable_cluster()->set_host_sums(false);
  EXPECT_EQ(Parents(Hosts({2, 2, 2}, 0), config), (Ints{-1, -1, -1}));
  config.Clear();
  config.mutable_cluster()->set_transport(config::Cluster::TCP);
  EXPECT_EQ(Parents(Hosts({2, 2, 2}, 0), config), (Ints{-1, -1, -1}));
}

TEST(SharesByMeasure, OnlyIfThereAreSlicesToMoveAndTheConfigIsSilent) {
  const auto shares = [](uint32_t slices, std::optional<config::Cluster::Shares> typed) {
    config::Config config;
    config.mutable_run()->set_slices(slices);
    config.mutable_cluster()->set_workers(4);
    if (typed) config.mutable_cluster()->set_shares(*typed);
    const bool changed = SharesByMeasure(config);
    EXPECT_EQ(changed, config.cluster().shares() == config::Cluster::MEASURED);
    return config.cluster().shares();
  };
  EXPECT_EQ(shares(8, {}), config::Cluster::MEASURED);
  EXPECT_EQ(shares(4, {}), config::Cluster::EVEN);
  EXPECT_EQ(shares(8, config::Cluster::EVEN), config::Cluster::EVEN);
}

}  // namespace workers_over_ssh_test
}  // namespace muster
