// Copies between host memory and GPU memory. The GPU accesses page-locked memory directly; other
// memory is copied through page-locked rings, because the driver would block the host.
//
// Owned by the backend and used on its thread. Only the constructor allocates memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "worker/backend/cuda/card.h"

namespace muster::cuda {

class HostCopies {
 public:
  explicit HostCopies(const Card& card);

  // Returns null if the driver does not lock these pages. In that case copies use the rings, and a
  // warning is logged once for each kind of memory.
  std::unique_ptr<HostRegistration> Register(const HostMemory& memory);
  void In(void* device, const void* host, size_t bytes);
  void Out(void* host, const void* device, size_t bytes);

  // The number of copies out so far. Land is called when the GPU has completed the copies up to
  // `until`; it moves their data from the ring to its destination.
  int64_t copies_out() const { return copies_out_; }
  void Land(int64_t until);

 private:
  class Registration;
  // A piece of page-locked memory, and an event that shows when the GPU has finished with it.
  struct Piece {
    std::byte* memory = nullptr;
    EventHandle done;
    bool used = false;
  };
  struct Landing {
    int64_t number;
    std::byte* from;
    std::byte* to;
    size_t bytes;
    size_t piece;
  };

  cudaError_t Lock(const HostMemory& memory) const;
  void SayUnlocked(const HostMemory& memory, cudaError_t why);
  bool IsLocked(const void* host, size_t bytes) const;
  void InPiece(void* device, const std::byte* host, size_t bytes);
  void OutPiece(std::byte* host, const void* device, size_t bytes);
  void LandFirst();

  static constexpr size_t kPieceBytes = size_t{2} << 20, kPieces = 8;
  static constexpr size_t kOutPieceBytes = size_t{64} << 10, kOutPieces = 32;

  const Card& card_;
  std::map<const std::byte*, size_t> locked_;  // begin → bytes
  std::set<std::string> said_unlocked_;        // by HostMemory::what
  LockedMemory in_memory_, out_memory_;
  std::array<Piece, kPieces> in_;
  std::array<Piece, kOutPieces> out_;
  size_t next_in_ = 0, next_out_ = 0;
  std::deque<Landing> landings_;
  int64_t copies_out_ = 0;
};

}  // namespace muster::cuda
