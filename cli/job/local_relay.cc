#include "cli/job/local_relay.h"

#include <fmt/core.h>
#include <unistd.h>

#include <set>
#include <vector>

#include "cli/job/failure.h"
#include "cli/process/log_tail.h"
#include "common/base/text.h"
#include "common/config/config.h"

namespace muster {

bool AddsInGpus(const config::Config& config) {
  const config::Cluster& cluster = config.cluster();
  return config.worker().gpu_sums() && config.worker().backend() == config::Worker::CUDA &&
         cluster.workers() > 1 && cluster.host_sums() &&
         cluster.transport() == config::Cluster::AUTO &&
         cluster.wire_dtype() == config::Cluster::FP32 && !HasProgram(config);
}

const std::string& LocalRelay::Require(const std::string& server) {
  Check();
  if (process_ != nullptr && process_->stopped()) process_.reset();  // kills it
  if (process_ != nullptr) return endpoint_;
  // Workers of an earlier relay must not find this one.
  endpoint_ = fmt::format("local://@muster-relay-{}-{}", ::getpid(), ++started_);
  ChildOptions relay{
      .program = plan_.worker_program,
      .arguments = {"--relay", endpoint_, "--endpoint", server, "--config", plan_.config_path,
                    "--token-file", token_.InheritedPath(), "--parent", std::to_string(::getpid())},
      .log_path = plan_.dir->RelayLogPath(),
      .inherited_fds = {token_.fd()},
      .append = started_ > 1 || plan_.goes_on()};
  // It reads the memory of all GPUs of the job, in the order of the ranks.
  std::vector<std::string> gpus;
  std::set<std::string> known;
  for (const WorkerPlace& place : plan_.places) {
    relay.inherited_fds.insert(relay.inherited_fds.end(), place.lock_fds.begin(),
                               place.lock_fds.end());
    if (known.insert(place.gpu.uuid).second) gpus.push_back(place.gpu.uuid);
  }
  if (!gpus.empty()) relay.environment.push_back("CUDA_VISIBLE_DEVICES=" + Join(gpus, ","));
  process_ = std::make_unique<ChildProcess>(relay);
  return endpoint_;
}

void LocalRelay::Check() {
  if (process_ == nullptr) return;
  const std::optional<ChildEnd> end = process_->CheckEnd();
  if (!end) return;
  process_.reset();
  if (!end->by_signal && end->value == 0) return;  // no worker needed it any more
  const std::string why = LastError(plan_.dir->RelayLogPath());
  console_.Print(
      fmt::format("Warning: lost the relay that adds the gradients, and its workers "
                  "with it: {}{}",
                  EndText(*end), why.empty() ? "" : "; " + why));
}

}  // namespace muster
