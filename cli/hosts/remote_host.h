// A connection to another host: one ssh that runs `muster host` there (see host_agent.h).
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/cluster/host_list.h"
#include "cli/process/child_process.h"
#include "cli/process/line_reader.h"

namespace muster {

// How to reach other hosts.
struct SshCommand {
  std::vector<std::string> words{"ssh"};  // the program and its first arguments
  std::string muster;                     // this program, which is in the same place on every host
  int most_unanswered = 3;  // probes, one every 5 s, before ssh gives up on a silent host
};

// The hosts of a job whose workers are not all on this one.
struct SshHosts {
  std::vector<Host> hosts;  // in the order of their ranks
  SshCommand ssh;
  std::string options;  // as the user would type them: "-H a:4,b:4"
};

// An ssh that gives up on a silent host no sooner than the job gives up on its workers.
SshCommand PatientSsh(SshCommand ssh, double silence_s);

// Parses --ssh COMMAND. Throws Error(kUsage).
std::vector<std::string> ParseSsh(const std::string& text);

// The arguments of the ssh to this host, after the program. The user's own options count more than
// those that keep it from waiting for a password or for a host that is gone.
std::vector<std::string> SshArguments(const SshCommand& ssh, const std::string& host);

// The name or address that ssh connects to for this name, according to its configuration.
std::string SshHostName(const SshCommand& ssh, const std::string& host);

// Owned by the main thread (see ChildProcess). When the object ends, so do the agent and every
// worker there, or within seconds if the network is broken.
class RemoteHost {
 public:
  // Starts ssh. Throws Error(kFailure) if there is no such program.
  RemoteHost(const SshCommand& ssh, const std::string& host);
  // Lets ssh and the agent end by themselves for a moment.
  ~RemoteHost();
  RemoteHost(const RemoteHost&) = delete;
  RemoteHost& operator=(const RemoteHost&) = delete;

  const std::string& name() const { return name_; }

  // Gives up if ssh takes no more messages, because it has hung for long then.
  void Send(const nlohmann::json& message);
  // Passes on the agent's messages that have come, and what ssh and the other host's shell said.
  void Read(const std::function<void(const nlohmann::json&)>& on_message,
            const std::function<void(const std::string&)>& on_text);
  std::vector<int> fds() const { return {output_.fd(), errors_.fd()}; }

  // Whether ssh has ended, and all that it said has been read.
  bool ended() { return Look(), end_ && output_.at_end() && errors_.at_end(); }
  // The version of Muster there; "" until it is known.
  const std::string& version() const { return version_; }
  // Why the connection failed or ended: "ssh ended with exit code 255: …".
  std::string Trouble() const;
  // Kills ssh, because the other host does not answer.
  void GiveUp();
  // Closes the agent's input, so that it ends.
  void Close() { input_.Reset(); }

 private:
  void Look();
  void OnOutput(const std::string& line,
                const std::function<void(const nlohmann::json&)>& on_message,
                const std::function<void(const std::string&)>& on_text);

  const std::string name_;
  UniqueFd input_;  // of ssh
  LineReader output_, errors_;
  std::unique_ptr<ChildProcess> ssh_;
  std::optional<ChildEnd> end_;
  bool given_up_ = false;
  std::string version_, last_words_;
};

}  // namespace muster
