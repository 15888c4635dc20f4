#include "tests/job/test_job.h"

#include <google/protobuf/text_format.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <random>
#include <thread>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/random.h"
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/link/protocol.h"
#include "common/link/tcp_address.h"
#include "common/transport/link_options.h"
#include "common/transport/transport.h"
#include "tests/job/test_worker.h"
#include "worker/client/terms.h"

namespace muster::testing {
namespace {

std::string UniqueName() {
  static std::atomic<int> counter{0};
  std::random_device random;
  return fmt::format("muster-test-{}-{}-{:08x}", ::getpid(), counter++, random());
}

// Created before main, so that child processes of a test share it.
const std::string kToken = [] {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}();

}  // namespace

const std::string& TestToken() { return kToken; }

config::Config SmallConfig(uint32_t workers, uint32_t slices) {
  config::Config config;
  MUSTER_CHECK(google::protobuf::TextFormat::ParseFromString(R"(
    run { steps: 3 global_batch: 16 seed: 7 }
    data { format: CIFAR10 dir: "/nowhere" preprocess { crop_height: 1 crop_width: 1 } }
    model {
      layer { name: "hidden" dense { units: 100
        weights { initializer { type: CONSTANT } } bias { initializer { type: CONSTANT } } } }
      layer { name: "relu" relu {} }
      layer { name: "out" dense { units: 10
        weights { initializer { type: CONSTANT } } bias { initializer { type: CONSTANT } } } }
      layer { name: "loss" softmax_cross_entropy {} }
    }
    optimizer { type: SGD }
    learning_rate { base: 1 }
    evaluation { every_epochs: 0 skip_final: true }
    cluster { chunk_bytes: 1024 transport: IPC on_lost_worker: ABORT }
    server { threads: 2 }
    worker { threads: 1 }
  )",
                                                             &config));
  config.mutable_cluster()->set_workers(workers);
  config.mutable_run()->set_slices(slices);
  return config;
}

ClientOptions WorkerOptions(const config::Config& config, const std::string& endpoint,
                            uint32_t rank, int64_t test_samples) {
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  ClientOptions options;
  options.endpoint = endpoint;
  options.token = TestToken();
  options.rank = rank;
  options.arena_floats = graph.arena_floats();
  options.link = LinkOptionsFor(config, graph.layout());
  options.link.token = TestToken();
  options.link.encrypt = IsEncrypted(config.cluster(), endpoint);
  options.transport = config.cluster().transport();
  options.start_s = 30;
  DescribeLayout(graph.layout(), options.hello);
  options.hello.set_train_samples(TestJob::kSamples);
  options.hello.set_test_samples(test_samples);
  options.hello.set_data_fingerprint(1);
  return options;
}

TestJob::TestJob(config::Config config, const std::string& transport, const Wrap& wrap)
    : config_(std::move(config)),
      graph_(BuildGraph(config_.model(), InputShape(config_.data()))),
      token_(TestToken()) {
  SetLogLevel(LogLevel::kError);
  const std::string endpoint =
      transport == "tcp" ? "tcp://127.0.0.1:*" : transport + "://@" + UniqueName();
  LinkOptions options = OptionsFor(0).link;
  options.encrypt = IsEncrypted(config_.cluster(), endpoint);
  auto link = Listen(endpoint, JobOf(token_), config_.cluster().transport(), options);
  endpoint_ = link->endpoint();
  if (wrap) link = wrap(std::move(link));
  std::optional<ResumePoint> resume;
  if (!ListCheckpoints(config_.run().dir()).empty()) resume = FindResumePoint(config_);
  recorder_ = std::make_unique<Recorder>(config_, graph_, -1, resume ? &resume->state() : nullptr);
  auto server = std::make_shared<Server>(config_, graph_, token_, std::move(link), *recorder_, -1,
                                         resume ? &*resume : nullptr);
  result_ = std::async(std::launch::async, [server]() mutable {
    const std::shared_ptr<Server> owned = std::move(server);
    return owned->Serve();
  });
}

TestJob::~TestJob() = default;

std::unique_ptr<Client> TestJob::Join(uint32_t rank) const {
  return std::make_unique<Client>(OptionsFor(rank));
}

ServerResult TestJob::Finish() { return result_.get(); }

std::string TestJob::FinishError(ExitCode* code) {
  try {
    (void)result_.get();
    return "";
  } catch (const Error& error) {
    if (code != nullptr) *code = error.code();
    return error.what();
  }
}

float Rough(int64_t step, int64_t slice, size_t i) {
  const auto bits = RandomStream(3, RandomPurpose::kSynthetic, static_cast<uint32_t>(step),
                                 static_cast<uint32_t>(slice), i)
                        .Block(0);
  return (ToUniform(bits[0]) - 0.5f) * std::exp2(static_cast<float>(bits[1] % 12));
}

float InRangeOfHalf(float value) {
  return std::abs(value) <= 65504 ? value : std::copysign(HUGE_VALF, value);
}

namespace {

class BehavedWorker final : private TestWorker {
 public:
  BehavedWorker(const WorkerBehaviour& behaviour, uint32_t rank)
      : behaviour_(behaviour), rank_(rank) {}

  std::vector<float> Run(Client& client) {
    const Order stop = Follow(client, behaviour_.convolutions);
    if (!stop.completed) throw Error(ExitCode::kPeerFailed, "stopped: {}", stop.reason);
    return seen_;
  }

 private:
  void Reached(Point point, const Order& order) override {
    if (point != Point::kForward && point != Point::kTakenOver && point != Point::kEvaluate) return;
    const std::span<const float> weights = client().Weights(order.version);
    seen_.assign(weights.begin(), weights.end());
    if (point == Point::kEvaluate) {
      if (order.average && rank_ == 0 && behaviour_.on_average) {
        behaviour_.on_average(order.version, client().Average());
      }
      return;
    }
    if (behaviour_.on_train) behaviour_.on_train(order);
    if (behaviour_.before_step) behaviour_.before_step(order.version);
  }
  float Gradient(const Order& order, int64_t slice, size_t i) override {
    const float value = behaviour_.gradient(order.version, slice, i) * order.loss_scale;
    return behaviour_.largest_half ? InRangeOfHalf(value) : value;
  }
  double Loss(const Order& order, int64_t slice) override {
    return behaviour_.loss ? behaviour_.loss(order.version, slice) : 1;
  }
  void FillBlock(const Order& order, int64_t block, wire::EvaluatedBlock& result) override {
    result.set_loss(static_cast<double>(block + 1));
    result.set_correct(behaviour_.correct ? behaviour_.correct(order.version, block) : 1);
  }
  std::vector<size_t> Sequence(size_t chunks) override {
    return behaviour_.chunk_order ? behaviour_.chunk_order(chunks) : TestWorker::Sequence(chunks);
  }

  const WorkerBehaviour& behaviour_;
  const uint32_t rank_;
  std::vector<float> seen_;
};

}  // namespace

std::vector<float> RunWorker(Client& client, const WorkerBehaviour& behaviour, uint32_t rank) {
  return BehavedWorker(behaviour, rank).Run(client);
}

std::vector<float> RunWorkers(TestJob& job, const WorkerBehaviour& behaviour) {
  std::vector<std::future<std::vector<float>>> workers;
  for (uint32_t rank = 0; rank < job.config().cluster().workers(); ++rank) {
    workers.push_back(std::async(std::launch::async, [&job, &behaviour, rank] {
      const std::unique_ptr<Client> client = job.Join(rank);
      return RunWorker(*client, behaviour, rank);
    }));
  }
  std::vector<float> seen;
  for (size_t rank = 0; rank < workers.size(); ++rank) {
    std::vector<float> mine = workers[rank].get();
    if (rank == 0) seen = std::move(mine);
  }
  return seen;
}

}  // namespace muster::testing
