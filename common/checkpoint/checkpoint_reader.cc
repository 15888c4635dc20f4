#include "common/checkpoint/checkpoint_reader.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <vector>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/text.h"
#include "common/checkpoint/run_mark.h"
#include "common/checkpoint/state_file.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

std::string ReadWholeFile(const std::string& path) {
  errno = 0;
  std::ifstream file = ReadPlainFile(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file) throw Error(ExitCode::kData, "{}: cannot be read: {}", path, std::strerror(errno));
  return text.str();
}

CheckpointName NameIn(const checkpoint::State& state) {
  return {state.generation(), state.step(), state.evaluated()};
}

// The checksum proves that the state is unchanged, but not who wrote it. Counts of steps must not
// exceed the step. Counts of samples must leave room for further counting.
void CheckNumbers(const std::string& file, const checkpoint::State& state) {
  constexpr int64_t kMostSteps = int64_t{1} << 53, kMostSamples = int64_t{1} << 62;
  const auto check = [&](const char* what, int64_t value, int64_t most) {
    if (0 <= value && value <= most) return;
    throw Error(ExitCode::kData, "{}: its {} is {}: expected a number from 0 to {}", file, what,
                value, most);
  };
  check("step", state.step(), kMostSteps);
  check("generation", state.generation(), kMostSteps);
  check("number of updates", state.updates(), state.step());
  check("number of skipped steps", state.skipped_in_a_row(), state.step());
  check("number of steps with this loss scale", state.loss_scale_good_steps(), state.step());
  const double scale = state.loss_scale();
  int exponent = 0;
  if (scale != 0 && !(0.5 <= scale && scale <= 0x1p32 && std::frexp(scale, &exponent) == 0.5)) {
    throw Error(ExitCode::kData,
                "{}: its loss scale is {:g}: expected 0 or a power of two from 0.5 to 2^32", file,
                scale);
  }
  const checkpoint::Progress& progress = state.progress();
  for (const auto* sums :
       {&progress.total(), &progress.since_log(), &progress.last_log(), &progress.since_epoch()}) {
    check("sum of steps", sums->steps(), state.step());
    check("sum of skipped steps", sums->skipped_steps(), state.step());
    check("sum of samples", sums->samples(), kMostSamples);
    check("sum of skipped samples", sums->skipped_samples(), kMostSamples);
    check("sum of correct samples", sums->correct(), kMostSamples);
  }
  const checkpoint::Decisions& decisions = state.decisions();
  check("number of reductions", decisions.reductions(), state.step());
  check("number of evaluations without improvement", decisions.stop().evaluations(), state.step());
  check("number of evaluations without improvement", decisions.plateau().evaluations(),
        state.step());
  check("length of metrics.jsonl", state.metrics().bytes(), kMostSamples);
}

// Returns the folder's real name, even if the path is a link to it or ".".
std::string OwnName(const std::string& folder) {
  std::error_code error;
  const fs::path whole = fs::canonical(folder, error);
  return (error ? fs::path(folder) : whole).filename();
}

std::string OneOf(const std::map<std::string, std::string>& values, const std::string& key) {
  const auto found = values.find(key);
  return found == values.end() ? "none" : found->second;
}

}  // namespace

std::string CheckpointsFolder(const std::string& run_dir) { return run_dir + "/checkpoints"; }

checkpoint::State ReadAnyState(const std::string& folder) {
  const std::string file = folder + "/" + kStateFile;
  checkpoint::State state = ParseStateFile(file, ReadWholeFile(file));
  CheckNumbers(file, state);
  const std::string name = OwnName(folder), inside = NameIn(state).Text();
  if (name != inside && fs::path(folder).filename() != inside) {
    throw Error(ExitCode::kData, "{}: holds the state of {}, expected that of {}", file, inside,
                name);
  }
  return state;
}

checkpoint::State ReadCheckpointState(const std::string& folder) {
  checkpoint::State state = ReadAnyState(folder);
  const std::string expected = ExpectedRunId(folder);
  if (expected.empty() || state.run_id() == expected) return state;
  throw Error(ExitCode::kData, "{}/{}: belongs to another run: expected run {}, got {}", folder,
              kStateFile, expected, state.run_id());
}

std::map<std::string, std::string> TensorMetadata(const checkpoint::State& state) {
  return {{"format", "muster checkpoint"},
          {"run", state.run_id()},
          {"checkpoint", NameIn(state).Text()},
          {"step", std::to_string(state.step())}};
}

CheckpointReader::CheckpointReader(const std::string& folder)
    : folder_(folder), state_(ReadCheckpointState(folder)), tensors_(folder + "/" + kTensorFile) {
  CheckHeader();
  for (const auto& tensor : state_.tensors().tensor()) known_.emplace(tensor.name(), &tensor);
}

void CheckpointReader::CheckHeader() const {
  const SafetensorsHeader& header = tensors_.header();
  for (const auto& [key, value] : TensorMetadata(state_)) {
    const std::string got = OneOf(header.metadata, key);
    if (got == value) continue;
    throw Error(ExitCode::kData, "{}: belongs to another checkpoint: its {} is {}, expected {}",
                tensors_.path(), key, Shown(got), Shown(value));
  }
  if (header.file_bytes() != state_.tensors().bytes()) {
    throw Error(ExitCode::kData, "{}: has {} bytes, expected {}", tensors_.path(),
                header.file_bytes(), state_.tensors().bytes());
  }
  // Hash the bytes in the file, because the parser ignores some kinds of damage.
  std::string bytes(header.data_begin, '\0');
  ReadPlainFile(tensors_.path()).read(bytes.data(), std::ssize(bytes));
  if (XXH3_64bits(bytes.data(), bytes.size()) != state_.tensors().header_xxh3()) {
    throw Error(ExitCode::kData, "{}: its header is damaged", tensors_.path());
  }
}

const checkpoint::TensorFile::Tensor& CheckpointReader::Find(const std::string& tensor) const {
  if (const auto found = known_.find(tensor); found != known_.end()) return *found->second;
  throw Error(ExitCode::kData, "{}: state.pb has no tensor {}", folder_, tensor);
}

const StoredTensor& CheckpointReader::Stored(const std::string& tensor) const {
  const StoredTensor* const stored = tensors_.header().Find(tensor);
  if (stored != nullptr) return *stored;
  throw Error(ExitCode::kData, "{}: has no tensor {}", tensors_.path(), tensor);
}

void CheckpointReader::Read(const std::string& tensor, std::span<float> to) const {
  ReadKnown(Find(tensor), to);
}

void CheckpointReader::ReadKnown(const checkpoint::TensorFile::Tensor& known,
                                 std::span<float> to) const {
  const std::string& tensor = known.name();
  const StoredTensor& stored = Stored(tensor);
  if (stored.type != TensorType::kF32 || stored.elements() != to.size()) {
    throw Error(ExitCode::kData, "{}: {} is {} of {}, expected {} floats", tensors_.path(), tensor,
                stored.ShapeString(), muster::Name(stored.type), to.size());
  }
  tensors_.ReadBytes(stored, std::as_writable_bytes(to));
  const uint64_t got = XXH3_64bits(to.data(), to.size_bytes());
  if (got == known.xxh3()) return;
  throw Error(ExitCode::kData, "{}: {} is damaged: expected checksum {:016x}, got {:016x}",
              tensors_.path(), tensor, known.xxh3(), got);
}

std::string CheckpointReader::ProgramState() const {
  if (!state_.has_program()) return "";
  const std::string path = folder_ + "/" + kProgramFile;
  std::string text = ReadWholeFile(path);
  const checkpoint::ProgramState& expected = state_.program();
  const bool is_whole = XXH3_64bits(text.data(), text.size()) == expected.xxh3();
  if (is_whole && text.size() == expected.bytes()) return text;
  if (text.size() != expected.bytes()) {
    throw Error(ExitCode::kData, "{}: is damaged: expected {} bytes, got {}", path,
                expected.bytes(), text.size());
  }
  throw Error(ExitCode::kData, "{}: is damaged: its checksum is wrong", path);
}

void CheckpointReader::Verify() const {
  (void)ProgramState();
  std::vector<float> scratch;
  for (const checkpoint::TensorFile::Tensor& tensor : state_.tensors().tensor()) {
    scratch.resize(Stored(tensor.name()).bytes() / sizeof(float));
    ReadKnown(tensor, scratch);
  }
}

}  // namespace muster
