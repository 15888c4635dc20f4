#include <csignal>
#include <memory>
#include <utility>

#include "common/base/log.h"
#include "common/base/process.h"
#include "common/base/program_options.h"
#include "common/base/resource_limits.h"
#include "common/base/signals.h"
#include "common/config/config.h"
#include "common/link/program_variables.h"
#include "common/link/protocol.h"
#include "common/link/tcp_address.h"
#include "common/program/program_link.h"
#include "common/trace/session.h"
#include "common/transport/link_options.h"
#include "worker/commands.h"
#include "worker/program/program_trainer.h"
#include "worker/run_command.h"

namespace muster {
namespace {

struct ProgramArguments {
  std::string config, endpoint, token_file;
  uint32_t rank = 0;
  int fd = -1;
};

void Refuse(ProgramLink& link, const Error& error) {
  const program::End end{
      .code = static_cast<int32_t>(error.code()), .has_last_weights = 0, .steps = 0};
  link.StopWatching();
  link.Send(program::Kind::kEnd, &end, sizeof end, {}, error.what());
}

void Join(const ProgramArguments& arguments, ProgramLink& link) {
  const ProgramDescription program = link.ReadDescription();
  if (program.join.pid != static_cast<uint32_t>(::getppid())) {
    throw Error(ExitCode::kPeerFailed, "the program ended before it joined");
  }
  const config::Config config = ReadResolvedConfig(arguments.config);
  const trace::Session session(trace::WorkerSession(config, arguments.rank), "program");
  RequireOpenFiles("a worker", 64);
  RequireThreads("a worker", 8);
  ClientOptions options;
  options.hello.set_threads(config.worker().threads());
  options.hello.set_pid(program.join.pid);
  options.hello.set_train_samples(program.join.train_samples);
  options.hello.set_data_fingerprint(program.join.fingerprint);
  options.hello.set_validation_samples(program.join.validation_samples);
  options.hello.set_test_samples(program.join.test_samples);
  if (program.join.batch > 0) options.hello.set_global_batch(program.join.batch);
  if (program.join.epochs > 0) options.hello.set_epochs(program.join.epochs);
  if (program.join.drop_last >= 0) options.hello.set_drop_last(program.join.drop_last > 0);
  if (program.join.loss_scaling >= 0) options.hello.set_loss_scaling(program.join.loss_scaling > 0);
  if (!program.arithmetic.empty()) options.hello.set_arithmetic(program.arithmetic);
  if (!program.optimizer.empty()) options.hello.set_optimizer(program.optimizer);
  const VariableLayout layout = DescribeVariables(program.variables, options.hello);
  link.MapMemory(layout.arena_floats());
  options.endpoint = arguments.endpoint;
  options.token = RequireToken(arguments.token_file, "a program");
  options.rank = arguments.rank;
  options.arena_floats = layout.arena_floats();
  options.initial = link.weights();
  options.link = LinkOptionsFor(config, layout);
  options.link.encrypt = IsEncrypted(config.cluster(), options.endpoint);
  if (options.link.encrypt) KeepOutOfCoreDumps();
  options.transport = config.cluster().transport();
  options.start_s = config.deadlines().start_s();
  options.silence_s = config.deadlines().silence_s();
  Client client(std::move(options));
  LogInfo("joined as rank {} over {}", client.rank(), client.link().transport());
  const program::Joined joined{.rank = client.rank(),
                               .first_step = client.terms().first_step,
                               .total_steps = client.plan().total_steps,
                               .steps_per_epoch = client.plan().StepsPerEpoch(),
                               .slices = client.plan().slices,
                               .state_bytes = 0};
  link.Send(program::Kind::kJoined, &joined, sizeof joined);
  try {
    ProgramTrainer(layout, program.join, config.run().seed(), client, link).Run();
  } catch (const Error& error) {
    const bool is_end = error.code() == ExitCode::kPeerFailed || error.code() == ExitCode::kOk;
    if (!is_end) client.ReportFailure(error.what(), error.code());
    throw;
  }
}

void Serve(const ProgramArguments& arguments) {
  ProgramLink link(UniqueFd(arguments.fd), ::getppid());
  try {
    Join(arguments, link);
  } catch (const Error& error) {
    Refuse(link, error);
    throw;
  }
}

}  // namespace

int ProgramCommand(int argc, char** argv) {
  ProgramArguments arguments;
  ProgramOptions program{
      "Takes part in a job on behalf of a program that trains its own model. Started by\n"
      "libmuster_client.so."};
  program.Add("--config", arguments.config, "The resolved config from the run directory")
      .Required();
  program.Add("--rank", arguments.rank, "The program's number, from 0").Required();
  program.Add("--endpoint", arguments.endpoint, "The endpoint of the server or relay").Required();
  program.Add("--token-file", arguments.token_file, kTokenFileText);
  program.Add("--fd", arguments.fd, "The socket whose other end the program has").Required();
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  for (const int signal : kStopSignals) std::signal(signal, SIG_IGN);  // the program decides
  return RunCommand(fmt::format("worker-{}", arguments.rank), [&] { Serve(arguments); });
}

}  // namespace muster
