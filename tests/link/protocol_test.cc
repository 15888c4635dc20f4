// The worked example of proto/PROTOCOL.md, byte for byte.
#include "common/link/protocol.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "common/base/error.h"
#include "proto/wire.pb.h"

namespace muster {
namespace {

TEST(Protocol, TheWorkedExample) {
  wire::WorkerMessage message;
  message.mutable_address()->set_job(0x1122334455667788);
  message.mutable_address()->set_rank(1);
  wire::GradientPart& part = *message.mutable_gradient_part();
  part.set_step(3);
  part.set_chunk(0);
  part.mutable_subtree()->set_level(0);
  part.mutable_subtree()->set_index(1);
  const unsigned char expected[] = {0x0a, 0x0b, 0x09, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33,
                                    0x22, 0x11, 0x10, 0x01, 0x2a, 0x0a, 0x08, 0x03, 0x10,
                                    0x00, 0x1a, 0x04, 0x08, 0x00, 0x10, 0x01};
  const std::string bytes = message.SerializeAsString();
  EXPECT_EQ(bytes, std::string(expected, expected + sizeof expected));
}

// printf 'muster job' | openssl dgst -sha256 -hmac 0123456789abcdef0123456789abcdef
TEST(Protocol, TheJobIsFromAKeyedHash) {
  EXPECT_EQ(JobOf("0123456789abcdef0123456789abcdef"), 0x785e7911627bc16f);
}

TEST(Protocol, TokenFiles) {
  const std::string path = ::testing::TempDir() + "/token-" + std::to_string(::getpid());
  const auto read = [&](const std::string& text) {
    std::ofstream(path) << text;
    ::chmod(path.c_str(), 0600);
    return ReadToken(path);
  };
  EXPECT_EQ(read("0123456789abcdef0123456789abcdef\n"), "0123456789abcdef0123456789abcdef");
  EXPECT_THROW(read(""), Error);
  EXPECT_THROW(read("0123456789abcdef"), Error);
  EXPECT_THROW(read("0123456789ABCDEF0123456789abcdef"), Error);
  EXPECT_THROW(read("0123456789abcdef0123456789abcdef0"), Error);
  EXPECT_THROW(read(std::string(100000, 'a')), Error);
  const std::string token = read("  0123456789abcdef0123456789abcdef\r\n");
  EXPECT_EQ(token, "0123456789abcdef0123456789abcdef");
  // A token that others can read or write is no secret.
  for (const mode_t mode : {0640, 0604, 0620, 0666}) {
    ::chmod(path.c_str(), mode);
    try {
      (void)ReadToken(path);
      ADD_FAILURE() << "mode " << std::oct << mode;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      EXPECT_NE(std::string(error.what()).find("chmod 600 " + path), std::string::npos);
      EXPECT_EQ(std::string(error.what()).find(token), std::string::npos);
    }
  }
  ::unlink(path.c_str());
  EXPECT_THROW(ReadToken(path), Error);
}

TEST(Protocol, TheTokenOfTheEnvironmentIsTakenOutOfIt) {
  const std::string token = "0123456789abcdef0123456789abcdef";
  ::unsetenv(kTokenVariable);
  EXPECT_EQ(FindToken(""), "");
  EXPECT_THROW(RequireToken("", "worker 0"), Error);
  ::setenv(kTokenVariable, token.c_str(), 1);
  EXPECT_EQ(RequireToken("", "worker 0"), token);
  EXPECT_EQ(std::getenv(kTokenVariable), nullptr);
  ::setenv(kTokenVariable, "0123", 1);
  EXPECT_THROW(FindToken(""), Error);
}

}  // namespace
}  // namespace muster
