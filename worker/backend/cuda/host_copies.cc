#include "worker/backend/cuda/host_copies.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "common/base/error.h"
#include "worker/backend/cuda/await.h"

namespace muster::cuda {
namespace {

constexpr double kPatience = 60;  // seconds, for the copy of a piece

void AwaitPiece(cudaEvent_t event) {
  if (AwaitEvent(event, kPatience)) return;
  throw Error(ExitCode::kDeadline, "this worker's GPU did not complete a copy within {} s",
              kPatience);
}

// Mentions the limit on locked memory, which some drivers apply.
std::string LockedMemoryHint() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return fmt::format("; this process may lock {:.1f} MB (RLIMIT_MEMLOCK, `ulimit -l`)",
                     static_cast<double>(limit.rlim_cur) * 1e-6);
}

}  // namespace

class HostCopies::Registration : public HostRegistration {
 public:
  Registration(HostCopies& copies, const std::byte* host) : copies_(copies), host_(host) {}
  ~Registration() override {
    copies_.locked_.erase(host_);
    (void)cudaHostUnregister(const_cast<std::byte*>(host_));
  }
  Registration(const Registration&) = delete;

 private:
  HostCopies& copies_;
  const std::byte* const host_;
};

HostCopies::HostCopies(const Card& card)
    : card_(card),
      in_memory_(AllocateLocked(kPieces * kPieceBytes)),
      out_memory_(AllocateLocked(kOutPieces * kOutPieceBytes)) {
  for (size_t i = 0; i < kPieces; ++i) {
    in_[i].memory = static_cast<std::byte*>(in_memory_.get()) + i * kPieceBytes;
    in_[i].done = MakeEventHandle();
  }
  for (size_t i = 0; i < kOutPieces; ++i) {
    out_[i].memory = static_cast<std::byte*>(out_memory_.get()) + i * kOutPieceBytes;
    out_[i].done = MakeEventHandle();
  }
}

std::unique_ptr<HostRegistration> HostCopies::Register(const HostMemory& memory) {
  if (memory.bytes == 0) return nullptr;
  if (const cudaError_t result = Lock(memory); result != cudaSuccess) {
    (void)cudaGetLastError();
    SayUnlocked(memory, result);
    return nullptr;
  }
  const auto* const begin = static_cast<const std::byte*>(memory.begin);
  locked_[begin] = memory.bytes;
  return std::make_unique<Registration>(*this, begin);
}

// Few drivers lock read-only mappings. The others lock them if the pages are writable at that
// moment, and do not check again.
cudaError_t HostCopies::Lock(const HostMemory& memory) const {
  void* const begin = const_cast<void*>(memory.begin);
  if (!memory.read_only) return cudaHostRegister(begin, memory.bytes, cudaHostRegisterDefault);
  if (card_.registers_read_only()) {
    return cudaHostRegister(begin, memory.bytes, cudaHostRegisterReadOnly);
  }
  if (::mprotect(begin, memory.bytes, PROT_READ | PROT_WRITE) != 0) {
    return cudaErrorNotPermitted;  // the memory is sealed
  }
  const cudaError_t result = cudaHostRegister(begin, memory.bytes, cudaHostRegisterDefault);
  MUSTER_CHECK(::mprotect(begin, memory.bytes, PROT_READ) == 0);
  return result;
}

void HostCopies::SayUnlocked(const HostMemory& memory, cudaError_t why) {
  if (!said_unlocked_.insert(memory.what).second) return;
  card_.options().Log(
      LogLevel::kWarning,
      fmt::format("GPU {}: cannot page-lock the host memory of {} ({:.1f} MB): CUDA reports {} "
                  "({}){}; the compute thread copies it piece by piece, which slows down each step",
                  card_.name(), memory.what, static_cast<double>(memory.bytes) * 1e-6,
                  cudaGetErrorString(why), cudaGetErrorName(why), LockedMemoryHint()));
}

bool HostCopies::IsLocked(const void* host, size_t bytes) const {
  const auto* const begin = static_cast<const std::byte*>(host);
  auto after = locked_.upper_bound(begin);
  if (after == locked_.begin()) return false;
  const auto& [first, size] = *--after;
  return begin + bytes <= first + size;
}

void HostCopies::In(void* device, const void* host, size_t bytes) {
  if (bytes == 0) return;
  if (IsLocked(host, bytes)) {
    Check(
        cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, card_.stream(Queue::kCopyIn)),
        "copy from the host");
    return;
  }
  for (size_t at = 0; at < bytes; at += kPieceBytes) {
    InPiece(static_cast<std::byte*>(device) + at, static_cast<const std::byte*>(host) + at,
            std::min(kPieceBytes, bytes - at));
  }
}

void HostCopies::InPiece(void* device, const std::byte* host, size_t bytes) {
  Piece& piece = in_[next_in_];
  next_in_ = (next_in_ + 1) % kPieces;
  if (piece.used) AwaitPiece(piece.done.get());
  std::memcpy(piece.memory, host, bytes);
  const cudaStream_t stream = card_.stream(Queue::kCopyIn);
  Check(cudaMemcpyAsync(device, piece.memory, bytes, cudaMemcpyHostToDevice, stream),
        "copy from the host");
  Check(cudaEventRecord(piece.done.get(), stream), "record an event");
  piece.used = true;
}

void HostCopies::Out(void* host, const void* device, size_t bytes) {
  if (bytes == 0) return;
  if (IsLocked(host, bytes)) {
    Check(
        cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, card_.stream(Queue::kCopyOut)),
        "copy to the host");
    return;
  }
  for (size_t at = 0; at < bytes; at += kOutPieceBytes) {
    OutPiece(static_cast<std::byte*>(host) + at, static_cast<const std::byte*>(device) + at,
             std::min(kOutPieceBytes, bytes - at));
  }
}

void HostCopies::OutPiece(std::byte* host, const void* device, size_t bytes) {
  if (landings_.size() == kOutPieces) {
    AwaitPiece(out_[landings_.front().piece].done.get());
    LandFirst();
  }
  const size_t index = next_out_;
  next_out_ = (next_out_ + 1) % kOutPieces;
  Piece& piece = out_[index];
  const cudaStream_t stream = card_.stream(Queue::kCopyOut);
  Check(cudaMemcpyAsync(piece.memory, device, bytes, cudaMemcpyDeviceToHost, stream),
        "copy to the host");
  Check(cudaEventRecord(piece.done.get(), stream), "record an event");
  landings_.push_back({++copies_out_, piece.memory, host, bytes, index});
}

void HostCopies::LandFirst() {
  const Landing landing = landings_.front();
  landings_.pop_front();
  std::memcpy(landing.to, landing.from, landing.bytes);
}

void HostCopies::Land(int64_t until) {
  while (!landings_.empty() && landings_.front().number <= until) LandFirst();
}

}  // namespace muster::cuda
