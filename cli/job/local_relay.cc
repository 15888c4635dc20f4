#include "cli/job/local_relay.h"

#include <fmt/core.h>
#include <unistd.h>

#include <optional>

#include "cli/job/failure.h"
#include "cli/process/log_tail.h"
#include "cli/process/token.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "common/config/config.h"

namespace muster {

bool AddsInGpus(const config::Config& config) {
  const config::Cluster& cluster = config.cluster();
  return config.worker().gpu_sums() && config.worker().backend() == config::Worker::CUDA &&
         cluster.workers() > 1 && cluster.host_sums() &&
         cluster.transport() == config::Cluster::AUTO &&
         cluster.wire_dtype() == config::Cluster::FP32 && !HasProgram(config) &&
         !config.worker().check_gradients();
}

// A replacement whose GPU the relay cannot see goes to the server directly.
const std::string& LocalRelay::EndpointFor(int rank, const std::string& server) {
  Check();
  if (failed_) return server;
  if (process_ != nullptr && process_->stopped()) process_.reset();  // kills it
  if (process_ == nullptr) Start(server);
  if (gpus_.empty()) return endpoint_;
  return gpus_.contains(places_[static_cast<size_t>(rank)].gpu.uuid) ? endpoint_ : server;
}

void LocalRelay::Start(const std::string& server) {
  // Workers of an earlier relay must not find this one, and nobody can take its name before.
  endpoint_ = "local://@muster-relay-" + NewToken();
  ++started_;
  ChildOptions relay{.program = plan_.worker_program,
                     .arguments = {"relay", "--listen", endpoint_, "--gpu-sums", "--endpoint",
                                   server, "--config", plan_.config_path, "--token-file",
                                   token_.InheritedPath(), "--parent", std::to_string(::getpid())},
                     .log_path = plan_.dir->RelayLogPath(),
                     .inherited_fds = {token_.fd()},
                     .append = started_ > 1 || plan_.goes_on()};
  // It reads the memory of all GPUs of the job, in the order of the ranks.
  std::vector<std::string> visible;
  gpus_.clear();
  for (const WorkerPlace& place : places_) {
    relay.inherited_fds.insert(relay.inherited_fds.end(), place.lock_fds.begin(),
                               place.lock_fds.end());
    if (gpus_.insert(place.gpu.uuid).second) visible.push_back(place.gpu.uuid);
  }
  if (!visible.empty()) relay.environment.push_back("CUDA_VISIBLE_DEVICES=" + Join(visible, ","));
  process_ = std::make_unique<ChildProcess>(relay);
}

void LocalRelay::Check() {
  if (process_ == nullptr) return;
  const std::optional<ChildEnd> end = process_->CheckEnd();
  if (!end) return;
  process_.reset();
  const auto ended_with = [&](ExitCode code) {
    return !end->by_signal && end->value == static_cast<int>(code);
  };
  // No worker needed it any more, or the server is lost.
  if (ended_with(ExitCode::kOk) || ended_with(ExitCode::kPeerFailed)) return;
  failed_ = !end->by_signal;
  const std::string why = LastError(plan_.dir->RelayLogPath());
  console_.Print(fmt::format(
      "Warning: lost the relay that adds the gradients, and its workers with it: {}{}{}",
      EndText(*end), why.empty() ? "" : "; " + why,
      failed_ ? ". From now on workers copy their gradients to the host" : ""));
}

}  // namespace muster
