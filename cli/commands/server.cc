// `muster server`.
#include "cli/commands/job_options.h"
#include "cli/data/normalization.h"

namespace muster {
namespace {

struct ServerOptions : JobOptions {
  WorkersByHand by_hand;
};

constexpr const char* kServerFooter =
    "The server creates the run directory and the job's token, prints the commands that start the "
    "workers, and shows the run as `muster launch` does. Start server and workers in any order, "
    "within deadlines.start_s of each other (such as --set deadlines.start_s=600).\n"
    "\n"
    "Examples:\n"
    "  muster server configs/cifar10.txtpb --workers 2 --data data\n"
    "      workers on this host only; any free port of the loopback interface\n"
    "  muster server configs/cifar10.txtpb --workers 2 --data data \\\n"
    "      --endpoint tcp://10.0.0.5:7700\n"
    "      workers on other hosts too, which connect to 10.0.0.5\n"
    "  muster server configs/cifar10.txtpb --workers 2 --data data \\\n"
    "      --endpoint tcp://lab3.example.org:7700 --bind 'tcp://*:7700'\n"
    "      workers connect to lab3.example.org; the server listens on every interface\n"
    "  muster server configs/cifar10.txtpb --workers 2 --data data \\\n"
    "      --endpoint 'tcp://[fd00::5]:7700'\n"
    "      over IPv6\n"
    "\n"
    "Workers on the server's host use shared memory (cluster.transport=AUTO). Connections between "
    "hosts require the token and are encrypted with keys derived from it (CURVE). On a trusted "
    "network, --set cluster.encryption=NONE is faster.\n"
    "\n"
    "Exit codes: see `muster launch --help`.";

void DescribeServer(CLI::App& command, ServerOptions& options) {
  options.Add(command, /*needs_config=*/true);
  AddOption(command, "--endpoint", options.by_hand.endpoint, "tcp://HOST:PORT",
            "Address that workers connect to; without --bind, the server listens on it. PORT may "
            "be * for any free port. Default: tcp://127.0.0.1:*, or a local name with "
            "cluster.transport=LOCAL");
  AddOption(command, "--bind", options.by_hand.bind, "tcp://HOST:PORT",
            "Address to listen on, if it differs; tcp://*:PORT: every interface");
  AddOption(command, "--token-file", options.by_hand.token_file, "FILE",
            "The job's token; default: $MUSTER_TOKEN, or a new token in the run directory");
  command.footer(kServerFooter);
}

int DoServer(const ServerOptions& options) {
  LaunchArguments arguments = options.arguments();
  arguments.by_hand = options.by_hand;
  arguments.measure = MeasureNormalization;
  return RunLaunch(arguments);
}

}  // namespace

void AddServer(CLI::App& app, Action& action) {
  AddCommand<ServerOptions>(app, action, "server", "Start a server for workers started by hand",
                            DescribeServer, DoServer);
}

}  // namespace muster
