#include "launch/data/md5.h"

#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <memory>
#include <string>

#include "common/base/error.h"
#include "common/base/plain_file.h"
#include "common/base/resource_limits.h"

namespace muster {
namespace {

struct Closer {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

}  // namespace

std::string Md5OfFile(const std::filesystem::path& path) {
  const std::unique_ptr<EVP_MD_CTX, Closer> context(EVP_MD_CTX_new());
  if (context == nullptr || EVP_DigestInit_ex(context.get(), EVP_md5(), nullptr) != 1) {
    throw Error(ExitCode::kFailure, "OpenSSL does not offer MD5 here (FIPS mode?), cannot check {}",
                path.string());
  }
  std::ifstream file = ReadPlainFile(path);
  if (!file) {
    throw Error(ExitCode::kFailure, "{}: cannot open: {}", path.string(), ErrorText(errno));
  }
  std::string buffer(1 << 18, '\0');
  while (file.read(buffer.data(), std::ssize(buffer)) || file.gcount() > 0) {
    EVP_DigestUpdate(context.get(), buffer.data(), static_cast<size_t>(file.gcount()));
  }
  if (file.bad()) {
    throw Error(ExitCode::kFailure, "{}: cannot read: {}", path.string(), ErrorText(errno));
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  EVP_DigestFinal_ex(context.get(), digest.data(), &size);
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

}  // namespace muster
