// `muster server`.
#include "cli/commands/job_options.h"
#include "cli/data/normalization.h"

namespace muster {
namespace {

struct ServerOptions : JobOptions {
  WorkersByHand by_hand;
};

constexpr const char* kServerFooter =
    "The server makes the run directory and the job's token, says how to start the workers, "
    "and shows the run as `muster launch` does. Server and workers may start in any order, "
    "within deadlines.start_s of one another (--set deadlines.start_s=600 where that takes "
    "longer).\n"
    "\n"
    "Examples:\n"
    "  muster server configs/cifar10.txtpb --workers 2 --data data\n"
    "      for workers of this host, at any free port of the loopback interface\n"
    "  muster server configs/cifar10.txtpb --workers 2 --data data \\\n"
    "      --endpoint tcp://10.0.0.5:7700\n"
    "      for workers of other hosts too, which reach this one as 10.0.0.5\n"
    "  muster server configs/cifar10.txtpb --workers 2 --data data \\\n"
    "      --endpoint tcp://lab3.example.org:7700 --bind 'tcp://*:7700'\n"
    "      workers connect to lab3.example.org; the server listens on every interface\n"
    "  muster server configs/cifar10.txtpb --workers 2 --data data \\\n"
    "      --endpoint 'tcp://[fd00::5]:7700'\n"
    "      over IPv6\n"
    "\n"
    "Workers of the server's host find its shared memory by themselves (cluster.transport: "
    "AUTO). Connections between hosts are encrypted with keys that come from the token (CURVE), "
    "and nobody gets in without it; on a network that you trust, --set cluster.encryption=NONE "
    "is faster.\n"
    "\n"
    "Exit codes: as of `muster launch`.";

void DescribeServer(CLI::App& command, ServerOptions& options) {
  options.Add(command);
  AddOption(command, "--endpoint", options.by_hand.endpoint, "tcp://HOST:PORT",
            "What workers connect to, and, without --bind, where the server listens; * as PORT: "
            "any free one. Default: "
            "tcp://127.0.0.1:*, or with cluster.transport=LOCAL a name on this host");
  AddOption(command, "--bind", options.by_hand.bind, "tcp://HOST:PORT",
            "Where to listen, if elsewhere; tcp://*:PORT: on every interface");
  AddOption(command, "--token-file", options.by_hand.token_file, "FILE",
            "The job's token; default: $MUSTER_TOKEN, or else a new one in the run directory");
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
  AddCommand<ServerOptions>(app, action, "server", "Start a server whose workers come by hand",
                            DescribeServer, DoServer);
}

}  // namespace muster
