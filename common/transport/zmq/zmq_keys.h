// The keys of ZeroMQ's CURVE, made from the job's token: whoever has the token has them, and nobody
// else. The server has one pair, all workers have another, so that each side knows the other one to
// be of the job. What a connection is encrypted with are keys of its own, which CURVE makes anew:
// who learns the token later cannot read what he recorded.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace muster {

struct CurvePair {
  std::array<uint8_t, 32> secret_half{};
  std::array<uint8_t, 32> public_half{};
};

// Throw Error(kFailure) where libzmq was built without CURVE, or OpenSSL cannot hash.
CurvePair ServerKeys(const std::string& token);
CurvePair WorkerKeys(const std::string& token);

// Leaves nothing of it in this memory.
void Forget(CurvePair& pair);

}  // namespace muster
