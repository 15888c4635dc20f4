// Resumes a run from a corrupt checkpoint, whose checksums are valid unless the input changes them.
// The run ends, by itself or with an Error. With an unchanged checkpoint it ends with the weights
// of an uninterrupted run. Changes that do not match a checksum are refused.
#include <sys/stat.h>
#include <xxhash.h>

#include <array>
#include <fstream>
#include <sstream>
#include <thread>

#include "common/checkpoint/state_file.h"
#include "common/config/build_graph.h"
#include "common/config/data_format.h"
#include "ps/record/resume.h"
#include "ps/run/server.h"
#include "tests/fuzz/book_worker.h"
#include "tests/fuzz/fuzz.h"
#include "tests/job/test_job.h"

namespace muster::fuzz {
namespace fuzz_checkpoint {

constexpr uint32_t kWorkers = 2;
constexpr int kPatience = 25'000;  // the limit of rounds until a run must end: 5 s or more

config::Config RunConfig(int64_t steps) {
  config::Config config = BookConfig(kWorkers, 3);
  config.mutable_run()->set_steps(steps);
  config.mutable_optimizer()->set_type(config::Optimizer::ADAM);
  config.mutable_optimizer()->set_ema_decay(0.9);
  config.mutable_evaluation()->set_every_steps(1);
  config.mutable_evaluation()->clear_skip_final();
  config.mutable_evaluation()->set_batch(10);
  config.mutable_tensorboard()->set_enabled(false);
  config.mutable_checkpoint()->set_every_steps(2);
  return config;
}

// Workers that follow orders, and disconnect when no more orders arrive.
class BookLink : public ServerLink {
 public:
  explicit BookLink(const config::Config& config, int patience)
      : workers_{BookWorker(config, 0), BookWorker(config, 1)}, patience_(patience) {}

  std::string endpoint() const override { return "book://"; }
  int fd() const override { return -1; }
  bool Pending() override { return true; }
  std::optional<FromWorker> Receive() override {
    if (said_hello_ < kWorkers) {
      const uint32_t rank = said_hello_++;
      return From(rank, workers_[rank].Hello());
    }
    for (uint32_t rank = 0; rank < kWorkers; ++rank) {
      if (workers_[rank].has_lines()) return From(rank, workers_[rank].Next());
    }
    if (patience_-- > 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));  // the disk is busy
      return std::nullopt;
    }
    if (patience_ > -2) throw Error(ExitCode::kTerminated, "all sides are idle");
    if (ended_ >= kWorkers) return std::nullopt;
    return FromWorker{.kind = FromWorker::Kind::kLost, .peer = ++ended_};
  }
  SendResult Send(PeerId peer, const wire::ServerMessage& message, const OutgoingTensor&) override {
    workers_[peer - 1].Hear(message);
    return SendResult::kQueued;
  }

 private:
  FromWorker From(uint32_t rank, wire::WorkerMessage message) {
    FromWorker event{.kind = FromWorker::Kind::kMessage, .peer = rank + 1};
    if (message.has_gradient_part() && !message.gradient_part().empty()) {
      const auto values =
          std::make_shared<std::vector<float>>(workers_[rank].GradientOf(message.gradient_part()));
      event.payload = {
          .data = values->data(), .bytes = values->size() * sizeof(float), .owner = values};
    }
    event.message = std::move(message);
    return event;
  }

  std::array<BookWorker, kWorkers> workers_;
  int patience_;
  uint32_t said_hello_ = 0;
  PeerId ended_ = 0;
};

uint64_t Run(const config::Config& config, const ResumePoint* resume, int patience) {
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  Recorder recorder(config, graph, -1);
  return Server(config, graph, testing::TestToken(), std::make_unique<BookLink>(config, patience),
                recorder, -1, resume)
      .Serve()
      .weights_hash;
}

std::string Slurp(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// The checkpoint after two of four steps.
struct Original {
  Original() {
    const Folder folder;
    config::Config config = RunConfig(2);
    config.mutable_run()->set_dir(folder.path());
    (void)Run(config, nullptr, kPatience);
    config.mutable_run()->set_steps(4);
    const ResumePoint point = FindResumePoint(config);
    state = point.state();
    tensors = Slurp(point.checkpoint.reader->folder() + "/" + kTensorFile);
    weights_hash = Run(RunConfig(4), nullptr, kPatience);
  }
  checkpoint::State state;
  std::string tensors;
  uint64_t weights_hash = 0;
};

void FixChecksums(const std::string& tensors, checkpoint::State& state) {
  checkpoint::TensorFile& file = *state.mutable_tensors();
  file.set_bytes(tensors.size());
  uint64_t length = 0;
  if (tensors.size() < sizeof length) return;
  std::memcpy(&length, tensors.data(), sizeof length);
  length = std::min<uint64_t>(length, tensors.size() - sizeof length);
  const std::string_view text = std::string_view(tensors).substr(sizeof length, length);
  file.set_header_xxh3(XXH3_64bits(tensors.data(), sizeof length + length));
  try {
    const SafetensorsHeader header = ParseSafetensorsHeader("tensors", text, tensors.size());
    for (checkpoint::TensorFile::Tensor& tensor : *file.mutable_tensor()) {
      const StoredTensor* const stored = header.Find(tensor.name());
      if (stored == nullptr) continue;
      tensor.set_xxh3(
          XXH3_64bits(tensors.data() + header.data_begin + stored->begin, stored->bytes()));
    }
  } catch (const Error&) {
    // Errors are left to the reader.
  }
}

// The first byte has flags: whether the input replaces the state's file instead of the state, and
// whether the tensors keep their old checksums. Then follow changes of the state and the tensors.
void Check(Input input, const Folder& folder) {
  static const Original original;
  const uint8_t how = input.Byte();
  checkpoint::State state = original.state;
  const std::string over_state = input.Piece();
  const bool parsed = state.MergeFromString(over_state);
  std::string tensors = original.tensors;
  bool changed = !over_state.empty();
  while (!input.empty()) {
    const size_t at = input.Number<uint32_t>() % tensors.size();
    const std::string bytes = input.Piece();
    if (bytes.empty()) tensors.resize(std::max<size_t>(at, 1));  // cut off
    tensors.replace(at, std::min(bytes.size(), tensors.size() - at), bytes);
    changed = true;
  }
  const bool broken = (how & 2) != 0 && tensors != original.tensors;
  if ((how & 2) == 0 && parsed && tensors != original.tensors) FixChecksums(tensors, state);
  const CheckpointName name{state.generation(), state.step(), state.evaluated()};
  const std::string in = "checkpoints/" + name.Text() + "/";
  folder.Clear();
  folder.Write(in + kStateFile, (how & 1) != 0 ? over_state : StateFileBytes(state));
  folder.Write(in + kTensorFile, tensors);
  config::Config config = RunConfig(4);
  config.mutable_run()->set_dir(folder.path());
  std::optional<ResumePoint> point;
  if (!OrError("", [&] { point = FindResumePoint(config); })) {
    Require(changed || (how & 1) != 0, "an unchanged checkpoint is refused");
    return;
  }
  Require(!broken, "a change of tensors with a wrong checksum is accepted");
  uint64_t hash = 0;
  const bool ended =
      OrError("", [&] { hash = Run(RunConfig(4), &*point, changed ? 20 : kPatience); });
  Require(changed || (ended && hash == original.weights_hash),
          "the weights differ from an uninterrupted run");
}

}  // namespace fuzz_checkpoint
}  // namespace muster::fuzz

FUZZ_TARGET(checkpoint) {
  muster::fuzz::SilenceLogs();
  static const muster::fuzz::Folder folder;
  muster::fuzz::fuzz_checkpoint::Check({data, size}, folder);
  return 0;
}
