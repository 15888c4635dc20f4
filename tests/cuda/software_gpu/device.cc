#include "tests/cuda/software_gpu/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "common/base/error.h"
#include "tests/cuda/software_gpu/violation.h"

namespace muster::software_gpu {
namespace {

// Also runs when the library that contains this code is closed.
void CheckAtExit() {
  StopExplaining();
  const std::vector<std::string> leaks = Device::Get().Leaks();
  if (leaks.empty()) return;
  fmt::print(stderr, "software GPU: {} objects leaked when the process ends:\n", leaks.size());
  for (const std::string& leak : leaks) fmt::print(stderr, "  {}\n", leak);
  std::abort();
}

}  // namespace

Device& Device::Get() {
  // Never destroyed, because a program may use it until its end.
  static auto* const only = new Device;
  return *only;
}

Device::Device() : options_(OptionsOfEnvironment()), faults_(options_.faults) {
  memory_.set_limit(options_.memory_bytes);
  ExplainHostAccess(&memory_);
  std::atexit(CheckAtExit);
}

void Device::Reset(const Options& options) {
  const std::vector<std::string> leaks = Leaks();
  for (const std::string& leak : leaks) ReportViolation("leaked before Reset: " + leak);
  const std::lock_guard lock(mutex_);
  options_ = options;
  memory_.set_limit(options.memory_bytes);
  failure_ = cudaSuccess;
  card_ = kNoCard;
  calls_.clear();
  faults_ = options.faults;
}

int& Device::CardOfThread() {
  static thread_local int card = 0;
  return card;
}

void Device::CheckCard(const char* call) {
  const int card = CardOfThread();
  int used = kNoCard;
  if (card_.compare_exchange_strong(used, card) || used == card) return;
  ReportViolation(
      fmt::format("{} of a thread that uses GPU {}, but the program's objects are on GPU {}", call,
                  card, used));
}

bool Device::Begin(const char* call, CallKind kind, int* error) {
  if (kind != CallKind::kOfNoCard) CheckCard(call);
  if (kind == CallKind::kNotInAStep || kind == CallKind::kMakes) {
    if (steps_ > 0) ReportViolation(fmt::format("{} inside a step", call));
    if (captures_ > 0) ReportViolation(fmt::format("{} during a capture", call));
  }
  const std::lock_guard lock(mutex_);
  const int number = ++calls_[call];
  for (const Fault& fault : faults_) {
    if (fault.call == call && fault.nth == number) {
      *error = fault.status;
      return false;
    }
  }
  return true;
}

void Device::FailCall(const std::string& call, int nth, int status) {
  const std::lock_guard lock(mutex_);
  faults_.push_back({call, calls_[call] + nth, status});
}

int Device::Calls(const std::string& call) {
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(call);
  return found == calls_.end() ? 0 : found->second;
}

std::map<std::string, int> Device::AllCalls() {
  const std::lock_guard lock(mutex_);
  return calls_;
}

void Device::set_holds(int change) {
  const std::lock_guard lock(mutex_);
  holds_ += change;
  released_.notify_all();
}

void Device::AwaitRelease() {
  std::unique_lock lock(mutex_);
  released_.wait(lock, [this] { return holds_ == 0; });
}

void Device::Fail(cudaError_t error) {
  cudaError_t none = cudaSuccess;
  failure_.compare_exchange_strong(none, error);
}

bool Device::IsLost() const {
  if (options_.lost_card_file.empty()) return false;
  std::ifstream file(options_.lost_card_file);
  const char* const ours = std::getenv("CUDA_VISIBLE_DEVICES");
  std::string lost;
  return ours != nullptr && file >> lost && lost == ours;
}

bool Device::KernelFails() {
  int error = cudaSuccess;
  if (IsLost()) {
    error = cudaErrorDevicesUnavailable;
  } else if (Begin("kernel", CallKind::kOfNoCard, &error)) {
    return false;
  }
  Fail(static_cast<cudaError_t>(error));
  return true;
}

cudaStream_t Device::MakeStream() {
  const std::lock_guard lock(mutex_);
  for (size_t slot = 0; slot < streams_.size(); ++slot) {
    if (streams_[slot]) continue;
    streams_[slot] = std::make_unique<CUstream_st>();
    streams_[slot]->stream = std::make_unique<Stream>(
        *this, static_cast<int>(slot), segments_[slot], options_.seed, options_.delay_us);
    return streams_[slot].get();
  }
  return nullptr;
}

void Device::DestroyStream(cudaStream_t stream) {
  std::unique_ptr<CUstream_st> taken;
  {
    const std::lock_guard lock(mutex_);
    for (auto& candidate : streams_) {
      if (candidate.get() == stream) taken = std::move(candidate);
    }
  }
  MUSTER_CHECK(taken);
  const auto slot = static_cast<size_t>(taken->stream->slot());
  while (!taken->stream->IsIdle()) std::this_thread::yield();
  const std::lock_guard lock(mutex_);
  segments_[slot] = taken->stream->segment();
}

Stream* Device::Find(cudaStream_t stream, const char* call) {
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) {
    ReportViolation(fmt::format("{} on the default stream, which no other stream waits for", call));
    return nullptr;
  }
  const std::lock_guard lock(mutex_);
  for (const auto& candidate : streams_) {
    if (candidate.get() == stream) return stream->stream.get();
  }
  ReportViolation(fmt::format("{} on a stream that does not exist", call));
  return nullptr;
}

cudaEvent_t Device::MakeEvent(bool timing) {
  const std::lock_guard lock(mutex_);
  auto event = std::make_unique<CUevent_st>();
  event->timing = timing;
  CUevent_st* const at = event.get();
  events_[at] = std::move(event);
  return at;
}

bool Device::DestroyEvent(cudaEvent_t event) {
  const std::lock_guard lock(mutex_);
  return events_.erase(event) == 1;
}

bool Device::IsEvent(cudaEvent_t event) {
  const std::lock_guard lock(mutex_);
  return events_.contains(event);
}

std::vector<Stream*> Device::streams() {
  const std::lock_guard lock(mutex_);
  std::vector<Stream*> all;
  for (const auto& stream : streams_) {
    if (stream) all.push_back(stream->stream.get());
  }
  return all;
}

Stream* Device::InSlot(int slot) {
  const std::lock_guard lock(mutex_);
  const auto& stream = streams_[static_cast<size_t>(slot)];
  return stream ? stream->stream.get() : nullptr;
}

Clock Device::known() {
  const std::lock_guard lock(mutex_);
  return known_;
}

void Device::Learn(const Clock& clock) {
  const std::lock_guard lock(mutex_);
  MergeInto(known_, clock);
}

void Device::Track(const void* object, const std::string& what) {
  const std::lock_guard lock(mutex_);
  tracked_[object] = what;
}

bool Device::Untrack(const void* object) {
  const std::lock_guard lock(mutex_);
  return tracked_.erase(object) == 1;
}

bool Device::IsTracked(const void* object) {
  const std::lock_guard lock(mutex_);
  return tracked_.contains(object);
}

std::vector<std::string> Device::Leaks() {
  std::vector<std::string> leaks = host_.Leaks();
  for (const auto& [address, bytes] : memory_.allocations()) {
    leaks.push_back(fmt::format("device memory of {} bytes", bytes));
  }
  const std::lock_guard lock(mutex_);
  for (const auto& stream : streams_) {
    if (stream) leaks.emplace_back("a stream");
  }
  for (size_t i = 0; i < events_.size(); ++i) leaks.emplace_back("an event");
  for (const auto& [object, what] : tracked_) leaks.push_back(what);
  return leaks;
}

}  // namespace muster::software_gpu
