#include "tests/e2e/ssh_cluster.h"

#include <fmt/core.h>

#include <cstdlib>
#include <fstream>

#include "tests/base/paths.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSshdConfig = R"(Port 22
HostKey DIR/host_key
AuthorizedKeysFile DIR/key.pub
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
PidFile none
)";

// The first value counts.
constexpr const char* kSshConfig = R"(Host stranger
  HostName 10.98.0.2
  HostKeyAlias stranger
Host *
  User root
  IdentityFile DIR/key
  IdentitiesOnly yes
  UserKnownHostsFile DIR/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  HostKeyAlias known
)";

// $1: the directory.
constexpr const char* kStart = R"(set -e
cd "$1"
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
mkdir /run/sshd
mount --bind hosts /etc/hosts
hostname here
ip link set lo up
ip link add br0 type bridge
ip addr add 10.98.0.1/24 dev br0
ip link set br0 up
number=2
for host in a b c old; do
  ip netns add $host
  ip link add v$host type veth peer name eth0 netns $host
  ip link set v$host master br0 up
  ip netns exec $host unshare --uts /bin/bash host.sh $host 10.98.0.$number &
  number=$((number + 1))
done
while :; do sleep 1; done
)";

constexpr const char* kHost = R"(set -e
hostname $1
ip link set lo up
ip addr add $2/24 dev eth0
ip link set eth0 up
if [ $1 = old ]; then mount --bind old MUSTER; fi
clock=
if [ $1 = b ] && unshare --time true; then clock="unshare --time --monotonic 1000000"; fi
exec $clock /usr/sbin/sshd -D -e -f sshd_config
)";

std::string Filled(std::string text, const std::string& name, const std::string& value) {
  for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += value.size()) {
    text.replace(at, name.size(), value);
  }
  return text;
}

}  // namespace

std::string SshCluster::WhyNot() {
  return Namespaces::WhyNot({"sshd", "ssh", "ssh-keygen", "unshare", "nsenter", "ip", "mount"},
                            "mount -t tmpfs tmpfs /run && ip link add br0 type bridge && "
                            "ip netns add n && ip link add v0 type veth peer name v1 netns n");
}

SshCluster::SshCluster() : namespaces_("ssh"), dir_(namespaces_.dir()) {
  const std::string dir = dir_.string();
  for (const char* key : {"key", "host_key", "other_key"}) {
    const std::string make =
        fmt::format("ssh-keygen -q -t ed25519 -N '' -f {}/{} </dev/null >/dev/null", dir, key);
    EXPECT_EQ(std::system(make.c_str()), 0);
  }
  std::ofstream(dir_ / "known_hosts")
      << "known " << Slurp(dir_ / "host_key.pub") << "stranger " << Slurp(dir_ / "other_key.pub");
  std::ofstream(dir_ / "sshd_config") << Filled(kSshdConfig, "DIR", dir);
  std::ofstream(dir_ / "ssh_config") << Filled(kSshConfig, "DIR", dir);
  std::ofstream(dir_ / "hosts") << "127.0.0.1 localhost\n10.98.0.1 here\n10.98.0.2 a\n"
                                   "10.98.0.3 b\n10.98.0.4 c\n10.98.0.5 old\n10.98.0.9 absent\n";
  std::ofstream(dir_ / "host.sh") << Filled(kHost, "MUSTER", BinPath("muster"));
  std::ofstream(dir_ / "old") << "#!/bin/sh\necho muster 0.0.1\n";
  fs::permissions(dir_ / "old", fs::perms::owner_all);
}

::testing::AssertionResult SshCluster::IsUp() {
  if (!namespaces_.Start(kStart, {dir_})) return ::testing::AssertionFailure() << "no namespaces";
  const auto answer = [&] {
    const std::string log = Slurp(dir_ / "daemons.log");
    size_t listening = 0;
    for (size_t at = 0; (at = log.find("listening on 0.0.0.0", at)) != std::string::npos; ++at) {
      ++listening;
    }
    return listening == 4;
  };
  if (Eventually(20, answer)) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << namespaces_.Log();
}

void SshCluster::Kill(const std::string& host) {
  (void)namespaces_.Run({"/bin/sh", "-c", "ip netns pids " + host + " | xargs kill -9"});
}

void SshCluster::Unplug(const std::string& host) {
  (void)namespaces_.Run({"/usr/bin/env", "ip", "link", "set", "v" + host, "down"});
}

}  // namespace muster::testing
