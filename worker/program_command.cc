#include "worker/serve_program.h"

#include <memory>
#include <utility>

#include "common/base/log.h"
#include "common/base/process.h"
#include "common/base/resource_limits.h"
#include "common/config/config.h"
#include "common/link/program_variables.h"
#include "common/link/protocol.h"
#include "common/link/tcp_address.h"
#include "common/program/program_link.h"
#include "common/trace/session.h"
#include "common/transport/link_options.h"
#include "worker/program/program_trainer.h"

namespace muster {
namespace {

void Refuse(ProgramLink& link, const Error& error) {
  const program::End end{
      .code = static_cast<int32_t>(error.code()), .has_last_weights = 0, .steps = 0};
  link.StopWatching();
  link.Send(program::Kind::kEnd, &end, sizeof end, {}, error.what());
}

void Join(const WorkerArguments& arguments, ProgramLink& link) {
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
  if (!program.optimizer.empty()) options.hello.set_optimizer(program.optimizer);
  const VariableLayout layout = DescribeVariables(program.variables, options.hello);
  link.MapMemory(layout.arena_floats());
  options.endpoint = arguments.endpoint;
  options.token = RequireToken(arguments.token_file, "a program");
  if (!arguments.join) options.rank = arguments.rank;
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

}  // namespace

void ServeProgram(const WorkerArguments& arguments) {
  ProgramLink link(UniqueFd(arguments.program_fd), ::getppid());
  try {
    Join(arguments, link);
  } catch (const Error& error) {
    Refuse(link, error);
    throw;
  }
}

}  // namespace muster
