// `muster host`, which `muster launch` starts on other hosts.
#include "cli/commands/options.h"
#include "cli/hosts/host_agent.h"

namespace muster {
namespace {

struct HostOptions {};

void DescribeHost(CLI::App& command, HostOptions&) {
  command.group("");  // not in the list of commands: users do not type it
  command.footer(
      "`muster launch -H` and `muster doctor --hosts` start this command on other hosts, with ssh. "
      "It starts the workers there, and ends with its standard input.\n"
      "\n"
      "Exit codes: 0 the launch has ended; 1 a failure; 2 its input is not from a launch; 5 it had "
      "nothing to do for a while; 7 the connection is lost.");
}

int DoHost(const HostOptions&) { return RunHostAgent(Sibling("muster-worker")); }

}  // namespace

void AddHost(CLI::App& app, Action& action) {
  AddCommand<HostOptions>(app, action, "host", "The part of a launch on another host", DescribeHost,
                          DoHost);
}

}  // namespace muster
