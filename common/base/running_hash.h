// Computes XXH3-64 of bytes that arrive in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

struct XXH3_state_s;

namespace muster {

class RunningHash {
 public:
  RunningHash();
  void Add(std::span<const std::byte> bytes);
  void Add(std::string_view bytes) { Add(std::as_bytes(std::span(bytes))); }
  // The hash of all bytes added so far. It does not depend on how they were split into pieces.
  uint64_t value() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

inline uint64_t HashOf(std::string_view bytes) {
  RunningHash hash;
  hash.Add(bytes);
  return hash.value();
}

}  // namespace muster
