// XXH3-64 of bytes that come piece by piece.
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
  // Of all that was added so far: that of the same bytes in one piece.
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
