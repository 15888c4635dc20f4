#include "common/transport/zmq/zmq_keys.h"

#include <openssl/crypto.h>
#include <zmq.h>

#include <string_view>

#include "common/base/error.h"
#include "common/link/secret.h"

namespace muster {
namespace {

// X25519 accepts any 32 bytes as a secret key.
CurvePair Derive(const std::string& token, std::string_view label) {
  constexpr size_t kZ85 = 41;  // 32 bytes as text, including the final zero
  CurvePair pair;
  pair.secret_half = DeriveFrom(token, label);
  std::array<char, kZ85> secret_text{}, public_text{};
  zmq_z85_encode(secret_text.data(), pair.secret_half.data(), pair.secret_half.size());
  const int failed = zmq_curve_public(public_text.data(), secret_text.data());
  OPENSSL_cleanse(secret_text.data(), secret_text.size());
  if (failed != 0) {
    throw Error(ExitCode::kFailure,
                "this libzmq was built without CURVE, so connections cannot be encrypted; between "
                "trusted hosts, set cluster.encryption=NONE");
  }
  zmq_z85_decode(pair.public_half.data(), public_text.data());
  return pair;
}

}  // namespace

CurvePair ServerKeys(const std::string& token) { return Derive(token, "muster curve server"); }
CurvePair WorkerKeys(const std::string& token) { return Derive(token, "muster curve worker"); }

void Forget(CurvePair& pair) { OPENSSL_cleanse(&pair, sizeof pair); }

}  // namespace muster
