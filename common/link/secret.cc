#include "common/link/secret.h"

#include <fmt/core.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include "common/base/error.h"
#include "common/base/resource_limits.h"

namespace muster {
namespace {

constexpr size_t kNameBytes = 16;

std::string Digits(std::span<const uint8_t, kNameBytes> bytes) {
  std::string digits;
  for (const uint8_t byte : bytes) digits += fmt::format("{:02x}", byte);
  return digits;
}

}  // namespace

std::string RandomDigits() {
  std::array<uint8_t, kNameBytes> random;
  if (::getrandom(random.data(), random.size(), 0) != std::ssize(random)) {
    throw Error(ExitCode::kFailure, "cannot get random numbers: {}", ErrorText(errno));
  }
  return Digits(random);
}

std::array<uint8_t, 32> DeriveFrom(const std::string& token, std::string_view label) {
  std::array<uint8_t, 32> derived{};
  unsigned size = 0;
  if (HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()),
           reinterpret_cast<const unsigned char*>(label.data()), label.size(), derived.data(),
           &size) == nullptr ||
      size != derived.size()) {
    throw Error(ExitCode::kFailure,
                "OpenSSL cannot compute HMAC-SHA-256, from which the job's keys and names are "
                "derived; check the installation of libcrypto");
  }
  return derived;
}

std::string DigitsFrom(const std::string& token, std::string_view label) {
  const auto derived = DeriveFrom(token, label);
  return Digits(std::span(derived).first<kNameBytes>());
}

}  // namespace muster
