// Derives the keys for ZeroMQ's CURVE from the job's token. The server has one pair and all workers
// share another, so that each side can verify that the other belongs to the job. CURVE encrypts
// each connection with new keys, so recorded traffic cannot be decrypted with a token that leaks
// later.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace muster {

struct CurvePair {
  std::array<uint8_t, 32> secret_half{};
  std::array<uint8_t, 32> public_half{};
};

// Both throw Error(kFailure) if libzmq was built without CURVE or OpenSSL cannot compute the hash.
CurvePair ServerKeys(const std::string& token);
CurvePair WorkerKeys(const std::string& token);

// Overwrites the keys in memory.
void Forget(CurvePair& pair);

}  // namespace muster
