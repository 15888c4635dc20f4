#include "bench/sync_job.h"

#include <fmt/core.h>

#include <algorithm>
#include <random>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/config/update_settings.h"

namespace muster::bench {
namespace {

// Weight decay keeps constant gradients from making the weights grow indefinitely.
constexpr float kRate = 0.125f, kMomentum = 0.5f, kDecay = 0.125f;

// `parse` is the protobuf parser for the enum's names.
template <typename Enum, typename Parser>
Enum Parse(const Parser& parse, const char* option, const std::string& name,
           const std::string& expected) {
  Enum value;
  if (parse(name, &value)) return value;
  throw Error(ExitCode::kUsage, "{} {}: expected {}", option, name, expected);
}

void SetCluster(const SyncOptions& options, config::Cluster& cluster) {
  cluster.set_workers(options.workers);
  if (options.chunk_bytes > 0 && options.chunk_bytes < 1024) {
    throw Error(ExitCode::kUsage, "--chunk-bytes {}: expected 0, or at least 1024",
                options.chunk_bytes);
  }
  if (options.chunk_bytes > 0) cluster.set_chunk_bytes(options.chunk_bytes);
  constexpr const char* kTransports = "LOCAL, IPC or TCP";
  cluster.set_transport(Parse<config::Cluster::Transport>(
      config::Cluster::Transport_Parse, "--transport", options.transport, kTransports));
  if (cluster.transport() == config::Cluster::AUTO) {
    throw Error(ExitCode::kUsage, "--transport {}: expected {}", options.transport, kTransports);
  }
  cluster.set_wire_dtype(Parse<config::Cluster::WireDtype>(
      config::Cluster::WireDtype_Parse, "--wire-dtype", options.wire_dtype, "FP32, BF16 or FP16"));
  if (cluster.wire_dtype() != config::Cluster::FP32 &&
      cluster.transport() == config::Cluster::LOCAL) {
    throw Error(ExitCode::kUsage, "--wire-dtype {}: LOCAL transport only supports FP32",
                options.wire_dtype);
  }
  cluster.set_encryption(Parse<config::Cluster::Encryption>(
      config::Cluster::Encryption_Parse, "--encryption", options.encryption, "NONE or CURVE"));
}

void SetUpdate(const SyncOptions& options, config::Config& config) {
  config::Server& server = *config.mutable_server();
  server.set_threads(options.server_threads);
  server.set_io_threads(options.io_threads);
  server.set_instruction_set(Parse<config::Server::InstructionSet>(
      config::Server::InstructionSet_Parse, "--instruction-set", options.instruction_set,
      "AUTO, SCALAR, AVX2 or AVX512"));
  config::Optimizer& optimizer = *config.mutable_optimizer();
  optimizer.set_type(Parse<config::Optimizer::Type>(config::Optimizer::Type_Parse, "--optimizer",
                                                    options.optimizer,
                                                    Join(OptimizerTypes(), ", ")));
  if (TraitsOf(optimizer).momentum > 0) optimizer.set_momentum(kMomentum);
  optimizer.set_weight_decay(kDecay);
  config.mutable_learning_rate()->set_base(kRate);
}

// Sets the model to one dense layer of about `floats` floats.
void SetModel(size_t floats, config::Config& config) {
  const auto units = static_cast<uint32_t>(std::max<size_t>(2, floats / 1024));
  config.mutable_data()->set_format(config::Data::SYNTHETIC);
  config::SyntheticData& data = *config.mutable_data()->mutable_synthetic();
  data.set_height(1);
  data.set_width(1);
  data.set_channels(static_cast<uint32_t>(std::max<size_t>(1, floats / units)));
  config::Layer& dense = *config.mutable_model()->add_layer();
  dense.set_name("dense");
  dense.mutable_dense()->set_units(units);
  dense.mutable_dense()->set_use_bias(false);
  dense.mutable_dense()->mutable_weights()->mutable_initializer()->set_type(
      config::Initializer::CONSTANT);
  config::Layer& loss = *config.mutable_model()->add_layer();
  loss.set_name("loss");
  loss.mutable_softmax_cross_entropy();
}

config::Config MakeConfig(const SyncOptions& options) {
  config::Config config;
  config.mutable_run()->set_steps(options.rounds + kWarmUpRounds);
  config.mutable_run()->set_global_batch(options.workers);
  config.mutable_run()->set_slices(options.workers);
  config.mutable_run()->set_log_every_steps(1000000000);
  SetCluster(options, *config.mutable_cluster());
  SetUpdate(options, config);
  config.mutable_evaluation()->set_every_epochs(0);
  config.mutable_evaluation()->set_skip_final(true);
  config.mutable_worker()->set_threads(1);
  SetModel(options.bytes / sizeof(float), config);
  return config;
}

}  // namespace

SyncJob MakeSyncJob(const SyncOptions& options) {
  SyncJob job{.options = options, .config = MakeConfig(options), .token = "", .endpoint = ""};
  std::random_device random;
  for (int i = 0; i < 4; ++i) job.token += fmt::format("{:08x}", random());
  const std::string name = "@muster-bench-" + job.token.substr(0, 16);
  job.endpoint = options.transport == "LOCAL" ? "local://" + name
                 : options.transport == "TCP" ? "tcp://127.0.0.1:*"
                                              : "ipc://" + name;
  return job;
}

}  // namespace muster::bench
