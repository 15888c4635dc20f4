#include "tests/e2e/slurm_cluster.h"

#include <fmt/core.h>

#include <cctype>
#include <fstream>
#include <sstream>

namespace muster::testing {
namespace {

namespace fs = std::filesystem;

// Loopback alone would not do. SlurmdTimeout: when a silent node counts as down.
constexpr const char* kConf = R"(ClusterName=test
SlurmctldHost=slurmhost(10.99.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1
StateSaveLocation=DIR/ctld
SlurmdSpoolDir=DIR/%n
SlurmctldPidFile=DIR/ctld.pid
SlurmdPidFile=DIR/%n.pid
SlurmctldLogFile=DIR/ctld.log
SlurmdLogFile=DIR/%n.log
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
JobRequeue=1
SlurmdTimeout=5
KillWait=5
NodeName=n1 NodeHostname=slurmhost NodeAddr=10.99.0.1 Port=7001 CPUs=2 RealMemory=1000
NodeName=n2 NodeHostname=slurmhost NodeAddr=10.99.0.1 Port=7002 CPUs=2 RealMemory=1000
PartitionName=p Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
)";

constexpr const char* kStart = R"(set -e
cd "$1"
mount -t proc proc /proc
hostname slurmhost
ip link set lo up
ip link add eth0 type veth peer name eth1
ip addr add 10.99.0.1/24 dev eth0
ip link set eth0 up
ip link set eth1 up
mount --bind hosts /etc/hosts
export SLURM_CONF=$1/slurm.conf PATH=$PATH:/usr/sbin
slurmctld -D &
slurmd -D -N n1 &
slurmd -D -N n2 &
while :; do sleep 1; done
)";

}  // namespace

std::string SlurmCluster::WhyNot() {
  return Namespaces::WhyNot(
      {"slurmctld", "slurmd", "srun", "sbatch", "unshare", "nsenter", "ip", "mount"},
      "ip link add eth0 type veth peer name eth1");
}

SlurmCluster::SlurmCluster() : namespaces_("slurm"), dir_(namespaces_.dir()) {
  for (const char* folder : {"ctld", "n1", "n2"}) fs::create_directory(dir_ / folder);
  std::string conf = kConf;
  for (size_t at = 0; (at = conf.find("DIR", at)) != std::string::npos;) {
    conf.replace(at, 3, dir_.string());
  }
  std::ofstream(dir_ / "slurm.conf") << conf;
  std::ofstream(dir_ / "hosts") << "127.0.0.1 localhost\n10.99.0.1 slurmhost\n";
}

::testing::AssertionResult SlurmCluster::IsUp() {
  if (!namespaces_.Start(kStart, {dir_})) return ::testing::AssertionFailure() << "no namespaces";
  if (Eventually(30, [&] { return NodesAreIdle(); })) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << namespaces_.Log() << Slurp(dir_ / "ctld.log");
}

bool SlurmCluster::NodesAreIdle() { return Run({"sinfo", "-h", "-o", "%T %D"}) == "idle 2\n"; }

::testing::AssertionResult SlurmCluster::Requeue(const std::string& job) {
  (void)Run({"scontrol", "requeue", job});
  if (Eventually(30, [&] { return NodesAreIdle(); })) return Becomes(job, "PENDING");
  return ::testing::AssertionFailure() << "the nodes did not become idle";
}

// Slurm itself would wait for two minutes. In the second of the requeue a node would take the new
// credential for the one that it has just revoked.
void SlurmCluster::Restart(const std::string& job) {
  (void)Run({"scontrol", "update", "JobId=" + job, "StartTime=now+2"});
}

std::vector<std::string> SlurmCluster::Inside(const std::vector<std::string>& words) const {
  std::vector<std::string> all{"/usr/bin/env", "SLURM_CONF=" + (dir_ / "slurm.conf").string()};
  all.insert(all.end(), words.begin(), words.end());
  return namespaces_.Inside(all);
}

std::string SlurmCluster::Run(const std::vector<std::string>& words) {
  std::vector<std::string> all{"/usr/bin/env", "SLURM_CONF=" + (dir_ / "slurm.conf").string()};
  all.insert(all.end(), words.begin(), words.end());
  return namespaces_.Run(all);
}

std::string SlurmCluster::Submit(const std::vector<std::string>& options,
                                 const std::string& script) {
  const fs::path path = dir_ / fmt::format("job{}.sh", jobs_++);
  std::ofstream(path) << "#!/bin/bash\n" << script;
  std::vector<std::string> words{"sbatch", "--parsable"};
  words.insert(words.end(), options.begin(), options.end());
  words.push_back(path);
  const std::string said = Run(words);
  EXPECT_TRUE(!said.empty() && std::isdigit(static_cast<unsigned char>(said[0]))) << said;
  return said.substr(0, said.find_first_not_of("0123456789"));
}

std::string SlurmCluster::JobField(const std::string& job, const std::string& field) {
  std::istringstream text(Run({"scontrol", "show", "job", "-o", job}));
  for (std::string word; text >> word;) {
    if (word.starts_with(field + "=")) return word.substr(field.size() + 1);
  }
  return "";
}

::testing::AssertionResult SlurmCluster::Becomes(const std::string& job, const std::string& state,
                                                 double seconds) {
  std::string now;
  if (Eventually(seconds, [&] { return (now = JobField(job, "JobState")) == state; })) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure()
         << "job " << job << " is " << now << ", not " << state << "\n"
         << Slurp(dir_ / "ctld.log");
}

}  // namespace muster::testing
